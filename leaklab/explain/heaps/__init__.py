"""A whole heap: its shape, what is new in it, what fits a condition."""
