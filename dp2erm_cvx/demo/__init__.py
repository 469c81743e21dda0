"""What ``dp2erm demo`` computes on the embedded NHEFS data."""
