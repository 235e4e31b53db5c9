"""One object, or all of the living heap: why it is there."""
