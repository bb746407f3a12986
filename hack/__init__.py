"""Harnesses around the product: devcluster, control plane, bench."""
