"""Benches: what the product costs, as ratios within one run (design §11). They report; they judge nothing."""
