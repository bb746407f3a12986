"""The node agent for long: repetitions of the cases, chance, kills, and the real control plane."""
