"""Families of first stages, each with its theorem and its composite."""
