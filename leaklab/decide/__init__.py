"""STAGE 2: is it a leak, of what, how fast, how sure. Pure functions on numbers."""
