"""What in a notebook's kernel takes memory, or piles up."""
