"""Models that certificates are computed from: composites, sets, regularizers, certified radii."""
