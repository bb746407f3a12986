"""Label algebra, names, quantities, manufacturers, presets: pure functions, the cellar of the house (spec 01)."""
