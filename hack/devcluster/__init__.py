"""A small, honest API server on SQLite for demos and tests (design §10)."""
