"""A heap in a file: its arrays, how they are written and read, how they are taken of the living one."""
