"""What leads to what: searches, dominators and flows on the flat arrays of a graph. Touches no object."""
