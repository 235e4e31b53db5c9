"""What comes back if references go: retained sizes, independent holders, the smallest cut."""
