"""The check, from counting to the changes that were tried. `leaklab.check.pipeline` has all of it on one page."""
