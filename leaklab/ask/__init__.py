"""Questions beside the check: about one object, two moments, one training run, the living heap."""
