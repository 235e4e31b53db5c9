"""What leaks: groups of survivors, their sizes, holders and owners, the evidence for a cause."""
