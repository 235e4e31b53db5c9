"""The steps of a check that join the stages: the pipeline calls them."""
