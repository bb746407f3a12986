"""What each command does; one module a command, each with one `run(options..., environ=...)`."""
