"""The engine of cures: what a change to a program is, how it is written, tried in memory, and measured."""
