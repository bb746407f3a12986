"""The device plugin: what the kubelet is offered, what it asks for, what it is answered (spec 06 §4-§7)."""
