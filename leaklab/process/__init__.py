"""What a process holds now: on request, and when memory runs out."""
