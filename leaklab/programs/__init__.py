"""Programs that nobody has edited: run one and watch its loop, or ask one that runs already."""
