"""What is measured, for Prometheus and for other services (spec 06 §13)."""
