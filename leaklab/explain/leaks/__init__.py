"""What leaks: groups of survivors, their sizes, their holders, the evidence."""
