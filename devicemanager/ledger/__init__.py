"""The node's ledger: who holds which card, read anew from Pods and kept honest by the kubelet (spec 06 §6)."""
