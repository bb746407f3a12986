"""The aggregated API behind a real kube-apiserver."""
