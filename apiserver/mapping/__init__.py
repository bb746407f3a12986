"""v1 kinds that are kept in objects of other kinds: Secrets, claims, storage classes."""
