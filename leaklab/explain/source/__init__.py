"""Whose code a file is, and which of its lines to show."""
