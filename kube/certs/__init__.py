"""Our certificates: `authority` issues, `rotation` decides, `keeper` shares them by a Secret, `live` serves them."""
