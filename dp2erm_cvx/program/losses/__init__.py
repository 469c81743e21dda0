"""Losses of second stages and of propensities: least squares and margin losses."""
