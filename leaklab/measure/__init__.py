"""What is alive, born and kept after each run; how full the memory is. Touches live objects, and judges nothing."""
