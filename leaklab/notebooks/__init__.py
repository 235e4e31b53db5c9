"""Whole notebooks: the reports that they made, executing them, exporting them."""
