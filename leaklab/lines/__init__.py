"""Which line of the user's code did it: changed, allocated, received, closed a cycle, called into C."""
