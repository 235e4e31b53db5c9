"""What no root reaches: the cycles, and where to cut them."""
