"""Watch a loop that runs once: levels at every step, checks of its stretches, what to do when memory ends."""
