"""The questions beside the check, a file for each: about one object, two moments, one training run, the living heap."""
