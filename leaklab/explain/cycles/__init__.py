"""What no root reaches: immortal cycles, how sure they are, and where to cut them."""
