"""The explorer: a widget that shows a report, or the living heap, and answers questions about it live."""
