"""Client, informers, queues, runtime, leader election and certificates for Kubernetes. Knows no kind of ours (design §5)."""
