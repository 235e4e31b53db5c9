"""Touch live objects: addresses, types, sizes, the collector's state; and what is leaklab's own among them."""
