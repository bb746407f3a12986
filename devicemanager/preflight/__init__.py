"""Is this node fit: detected, sliceable, manageable while sliced (spec 06 §15)."""
