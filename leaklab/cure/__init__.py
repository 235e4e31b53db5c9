"""What a change to a program is, how it is written, tried in memory, and measured; not which change a leak needs."""
