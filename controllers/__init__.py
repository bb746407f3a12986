"""Reconcilers of the scheduling chain; one module each (spec 04)."""
