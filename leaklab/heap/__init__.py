"""The heap as a graph: every object and every reference, also what the collector does not report."""
