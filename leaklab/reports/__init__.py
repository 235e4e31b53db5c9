"""What the user holds: one report class for each question, around a frozen record."""
