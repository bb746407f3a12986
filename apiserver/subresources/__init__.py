"""Sub-resources that are answered from other objects: logs, events, metrics."""
