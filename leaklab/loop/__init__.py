"""Watch a loop that runs once: levels between its steps, and checks of its stretches."""
