"""Hardware partitions: made, reused, reclaimed (spec 06 §10). `port` has the words, `keeper` the work."""
