"""Tests on the real control plane; `make e2e` runs them, `make test` does not."""
