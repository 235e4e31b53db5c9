"""Touch live objects: addresses, types, sizes, the collector, forked children; and what is leaklab's own among them."""
