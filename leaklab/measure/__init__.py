"""STAGE 1: what is alive, born and kept after each run. Touches live objects."""
