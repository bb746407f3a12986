"""What the agent writes: a NodeFeature with its labels, a Devices object with inventory and ledger (spec 06 §3)."""
