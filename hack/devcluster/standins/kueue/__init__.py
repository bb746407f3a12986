"""Stand-in for Kueue: quota, admission checks, eviction in two writes, Hold and HoldAndDrain.

Left out: topology-aware scheduling, preemption, cohorts and borrowing, fair sharing, partial admission, several
resource groups a queue, integrations other than plain Pods that already carry Kueue's scheduling gate, metrics,
visibility, status of LocalQueues. Field names and condition reasons are those of `kueue.x-k8s.io/v1beta2`.
"""
