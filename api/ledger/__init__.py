"""The per-card ledger: modes, the transport record, rebuilding, placements, fit and the four views (spec 02 §3-§4)."""
