"""Programs of users: each does the same with another client library."""
