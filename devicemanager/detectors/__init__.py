"""Sources of raw vendor answers: recorded machines and this host."""
