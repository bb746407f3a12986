"""The kinds and the arithmetic on them: pure (spec 02)."""
