"""The roof: command line, configuration, supervisor. Imports the wings; nobody imports it (design §2)."""
