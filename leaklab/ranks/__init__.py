"""Many processes that check the same program: they agree on their runs, and give one answer."""
