"""The aggregated API server (spec 03)."""
