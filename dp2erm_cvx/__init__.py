"""Differentially private two-stage empirical risk minimization on CVXPY."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dp2erm_cvx import display

if TYPE_CHECKING:
    from dp2erm_cvx.cells import Treatment
    from dp2erm_cvx.codebook import Codebook
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.design import PublicData
    from dp2erm_cvx.domain import Domain, Universe
    from dp2erm_cvx.domain_file import load_domain
    from dp2erm_cvx.estimators import (
        PrivateEffect,
        PrivateRanges,
        PrivateRule,
        PrivateTwoStageERM,
        TwoStageERM,
    )
    from dp2erm_cvx.ledger import Ledger
    from dp2erm_cvx.privacy import Budget, Neighboring
    from dp2erm_cvx.private_ranges import OpenDomain, Within
    from dp2erm_cvx.release.effect import EffectRelease
    from dp2erm_cvx.release.ranges import RangesRelease
    from dp2erm_cvx.release.reading import read_release
    from dp2erm_cvx.release.rule import RuleRelease, effects, recommend
    from dp2erm_cvx.release.two_stage import Release

__version__ = "0.1.0"

_HOME = {
    "Budget": "privacy",
    "Codebook": "codebook",
    "Dataset": "data",
    "Domain": "domain",
    "EffectRelease": "release.effect",
    "Ledger": "ledger",
    "Neighboring": "privacy",
    "OpenDomain": "private_ranges",
    "PrivateEffect": "estimators",
    "PrivateRanges": "estimators",
    "PrivateRule": "estimators",
    "PrivateTwoStageERM": "estimators",
    "PublicData": "design",
    "RangesRelease": "release.ranges",
    "Release": "release.two_stage",
    "RuleRelease": "release.rule",
    "Treatment": "cells",
    "TwoStageERM": "estimators",
    "Universe": "domain",
    "Within": "private_ranges",
    "effects": "release.rule",
    "load_domain": "domain_file",
    "read_release": "release.reading",
    "recommend": "release.rule",
}

__all__ = [
    "Budget",
    "Codebook",
    "Dataset",
    "Domain",
    "EffectRelease",
    "Ledger",
    "Neighboring",
    "OpenDomain",
    "PrivateEffect",
    "PrivateRanges",
    "PrivateRule",
    "PrivateTwoStageERM",
    "PublicData",
    "RangesRelease",
    "Release",
    "RuleRelease",
    "Treatment",
    "TwoStageERM",
    "Universe",
    "Within",
    "effects",
    "load_domain",
    "read_release",
    "recommend",
]


def __getattr__(name: str) -> Any:
    # on demand, because CVXPY and scikit-learn take most of a second to import
    if name in _HOME:
        return getattr(import_module(f"dp2erm_cvx.{_HOME[name]}"), name)
    raise AttributeError(f"module 'dp2erm_cvx' has no attribute {name!r}")


# a release or a plan is data, and what is told of it stands in a folder that takes long to import
display.load_by(lambda: import_module("dp2erm_cvx.report"))
