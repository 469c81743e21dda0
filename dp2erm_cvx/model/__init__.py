"""What a solve is judged against: composites, the sets and regularizers in them, and certified radii."""
