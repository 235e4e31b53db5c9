"""STAGE 3: who holds it, through which references, what cures it. Touches live objects."""
