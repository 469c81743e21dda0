"""Weights as the variable of a convex program: what is read of it, its stability and its
solution.
"""
