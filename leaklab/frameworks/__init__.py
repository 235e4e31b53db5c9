"""Monitors as callbacks of training frameworks; each module imports its framework when it is imported itself."""
