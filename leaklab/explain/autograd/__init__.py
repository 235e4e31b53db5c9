"""Autograd graphs: their nodes, what these saved, and which line made them."""
