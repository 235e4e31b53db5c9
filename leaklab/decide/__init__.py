"""Is it a leak, of what, how fast, how sure. Pure functions on numbers."""
