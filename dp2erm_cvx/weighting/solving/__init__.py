"""The weights of one dataset: its dual, its certificate, its multipliers."""
