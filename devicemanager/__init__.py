"""The node agent: detects, publishes, keeps the ledger, serves the kubelet (spec 06)."""
