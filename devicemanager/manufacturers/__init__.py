"""What each manufacturer's raw answers mean: one module a manufacturer, one registry (spec 06 §2.2-§2.7)."""
