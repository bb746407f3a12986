"""Who asks, and may they: front proxy, client certificate, token, anonymous; one access review for all of them."""
