"""Protocol engine of a Kubernetes API server; knows no kind (spec 03 B)."""
