"""Work queues, stacked: `dedup` (one run per key at a time), `delay` (later), `rate` (how much later)."""
