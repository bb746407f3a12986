"""The demo: the whole chain on one machine, as the same processes a cluster runs (design §4, §10)."""
