"""Paths in words: references named and folded, expressions that evaluate, known holders."""
