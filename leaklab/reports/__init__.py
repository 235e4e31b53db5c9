"""What the user holds: a file for each question, with what is said of its record and the class around it."""
