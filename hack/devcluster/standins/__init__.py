"""Stand-ins for the engines around the product. Each module says what it leaves out (design §10)."""
