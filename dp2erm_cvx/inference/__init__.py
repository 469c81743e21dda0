"""Intervals, ratios and errors of nuisances: from released and public numbers."""
