"""Releases: theta, its guarantee and the statements of the steps, and how to use it."""

from dp2erm_cvx.release.record import (
    SCHEMA_VERSION,
    Guarantee,
    NumericalNoise,
    Release,
    Standing,
    StepStatement,
    json_schema,
)

__all__ = [
    "SCHEMA_VERSION",
    "Guarantee",
    "NumericalNoise",
    "Release",
    "Standing",
    "StepStatement",
    "json_schema",
]
