"""Weights as the variable of a convex program: its reading, stability and solution."""
