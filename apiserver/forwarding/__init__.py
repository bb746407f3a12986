"""Thin v1 views over custom resources: requests are built anew, answers relayed with their version rewritten."""
