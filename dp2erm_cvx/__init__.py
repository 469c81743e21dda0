"""Differentially private two-stage empirical risk minimization on CVXPY."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dp2erm_cvx import hooks

if TYPE_CHECKING:
    from dp2erm_cvx.data.blocked import BlockedDataset
    from dp2erm_cvx.data.cells import Treatment
    from dp2erm_cvx.data.codebook import Codebook
    from dp2erm_cvx.data.dataset import Dataset
    from dp2erm_cvx.data.domain import Domain
    from dp2erm_cvx.data.domain_file import load_domain
    from dp2erm_cvx.data.private_ranges import OpenDomain, Within
    from dp2erm_cvx.data.universe import Universe
    from dp2erm_cvx.design import PublicData
    from dp2erm_cvx.diagnostics import augmented, balance_table
    from dp2erm_cvx.estimators import (
        PrivateEffect,
        PrivateRanges,
        PrivateRule,
        PrivateTwoStageERM,
        TwoStageERM,
    )
    from dp2erm_cvx.ledger import Ledger
    from dp2erm_cvx.plan.predict import planned_range
    from dp2erm_cvx.privacy import Budget, Neighboring
    from dp2erm_cvx.release.effect import EffectRelease
    from dp2erm_cvx.release.ranges import RangesRelease
    from dp2erm_cvx.release.reading import read_release
    from dp2erm_cvx.release.rule import RuleRelease, effects, recommend
    from dp2erm_cvx.release.two_stage import Release
    from dp2erm_cvx.report.figures import forest_plot, love_plot, overlap_plot
    from dp2erm_cvx.study import read_study

__version__ = "0.1.0"

_HOME = {
    "BlockedDataset": "data.blocked",
    "Budget": "privacy",
    "Codebook": "data.codebook",
    "Dataset": "data.dataset",
    "Domain": "data.domain",
    "EffectRelease": "release.effect",
    "Ledger": "ledger",
    "Neighboring": "privacy",
    "OpenDomain": "data.private_ranges",
    "PrivateEffect": "estimators",
    "PrivateRanges": "estimators",
    "PrivateRule": "estimators",
    "PrivateTwoStageERM": "estimators",
    "PublicData": "design",
    "RangesRelease": "release.ranges",
    "Release": "release.two_stage",
    "RuleRelease": "release.rule",
    "Treatment": "data.cells",
    "TwoStageERM": "estimators",
    "Universe": "data.universe",
    "Within": "data.private_ranges",
    "augmented": "diagnostics",
    "balance_table": "diagnostics",
    "effects": "release.rule",
    "forest_plot": "report.figures",
    "load_domain": "data.domain_file",
    "love_plot": "report.figures",
    "overlap_plot": "report.figures",
    "planned_range": "plan.predict",
    "read_release": "release.reading",
    "read_study": "study",
    "recommend": "release.rule",
}

__all__ = [
    "BlockedDataset",
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
    "augmented",
    "balance_table",
    "effects",
    "forest_plot",
    "load_domain",
    "love_plot",
    "overlap_plot",
    "planned_range",
    "read_release",
    "read_study",
    "recommend",
]


def __getattr__(name: str) -> Any:
    # on demand, because CVXPY and scikit-learn take most of a second to import
    if name in _HOME:
        return getattr(import_module(f"dp2erm_cvx.{_HOME[name]}"), name)
    raise AttributeError(f"module 'dp2erm_cvx' has no attribute {name!r}")


# a release or a plan is data, and what is told of it stands in a folder that takes long to import
hooks.load_by(lambda: import_module("dp2erm_cvx.report"))
