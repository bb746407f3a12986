"""A kubelet's device manager for tests and the demo: the real protocols, the real rules, no containers."""
