"""Read memory snapshots of torch safely, and compare them by call stack."""
