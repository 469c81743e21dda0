"""Releases: their guarantee, the statements of their steps, and how they are read and verified."""

from dp2erm_cvx.release.record import SCHEMA_VERSION, Guarantee, NumericalNoise, StepStatement

__all__ = ["SCHEMA_VERSION", "Guarantee", "NumericalNoise", "StepStatement"]
