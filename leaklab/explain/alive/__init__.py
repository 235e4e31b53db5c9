"""Why one object is alive, and what letting go of it frees."""
