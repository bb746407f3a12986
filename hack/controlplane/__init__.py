"""A real Kubernetes control plane on one machine, without containers.

For: `make controlplane` and `tests/e2e`, where the product meets the engines it leans on in their released form.
In: a cache of binaries built from `tools/` (`python -m hack.controlplane build`) and an empty state folder.
Out: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, Kueue, NFD master and kwok on 127.0.0.1.
Promises: every port is chosen free; all state lies in one folder; nothing outlives `down`; two can run side by side.
Docs: docs/controlplane.md.
"""
