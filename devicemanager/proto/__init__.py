"""Messages of the kubelet's two protocols, generated from the `.proto` files beside this one (decision 0360)."""
