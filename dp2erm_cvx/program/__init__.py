"""Names that a scheme file imports: decorators, and what programs of the library are built of."""

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import setting
from dp2erm_cvx.curves.atoms import bounded_influence, probit
from dp2erm_cvx.curves.curves import Curve, Part
from dp2erm_cvx.curves.log_weights import LogWeight
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.model.sets import Box, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program.arms import ARM_SETTINGS, capped_by_arm, caps_of_arms, imbalance_of_arms
from dp2erm_cvx.program.balance import Balance, BalanceFunctions, Landmarks, Moments
from dp2erm_cvx.program.declaration import Declaration, Params
from dp2erm_cvx.program.first_stage import ClosedFormWeights, FirstStage
from dp2erm_cvx.program.kernels import Gaussian
from dp2erm_cvx.program.margin_rows import MarginRows
from dp2erm_cvx.program.registry import build, first_stages, second_stages
from dp2erm_cvx.program.rows import Ball
from dp2erm_cvx.program.second_stage import SecondStage
from dp2erm_cvx.program.separable import PrivateFirstStage, SeparableFirstStage, private
from dp2erm_cvx.program.stage import Instance, Kind, Program
from dp2erm_cvx.program.weights import describe, scheme, second_stage
from dp2erm_cvx.stability import Bound

__all__ = [
    "ARM_SETTINGS",
    "Array",
    "Balance",
    "BalanceFunctions",
    "Ball",
    "Bound",
    "Box",
    "ClosedFormWeights",
    "Curve",
    "Declaration",
    "FirstStage",
    "Gaussian",
    "Instance",
    "Kind",
    "L1Ball",
    "L2Ball",
    "Landmarks",
    "LogWeight",
    "MappedUniverse",
    "MarginRows",
    "Moments",
    "Params",
    "Part",
    "PrivateFirstStage",
    "Program",
    "Records",
    "SecondStage",
    "SeparableFirstStage",
    "Space",
    "StabilityBound",
    "WholeSpace",
    "bounded_influence",
    "build",
    "capped_by_arm",
    "caps_of_arms",
    "describe",
    "first_stages",
    "imbalance_of_arms",
    "private",
    "probit",
    "scheme",
    "second_stage",
    "second_stages",
    "setting",
]
