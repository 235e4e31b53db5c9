"""The heap as a graph: every object and every reference, also those that the collector does not report."""
