"""From a function that an author writes in CVXPY to a program whose constants are derived.

This module has the names that a scheme file imports. A declaration passes through the folder in
this order; no step imports a later one.

1. **The declaration.** ``declaration`` prints expressions, compares them with CVXPY and compiles a
   problem with its data as parameters. ``balance``, ``kernels`` and ``rows`` are what an author
   takes from records: each datum is a function of one record, and lies in a public set that is
   enforced. ``reach`` finds what an author's function reaches beside its arguments, and refuses
   whatever could hold data. ``scheme`` is a decorated function with its settings, ``stage`` the
   base of the programs that it makes; ``trust`` and ``stated`` say which programs are the library's
   own, and what a release states of the others.
2. **The reader.** ``form`` reads a problem in a coefficient or in theta: curves of one margin, an
   elastic net, a set; ``penalties`` reads the public terms beside them. ``weighting`` reads a
   problem in the weights: a dispersion, prices of imbalances, boxes and sums. ``stated_losses``
   holds what was read of the library's programs. Whatever was read is compared with CVXPY's own
   values and slopes.
3. **Rows.** ``margin_rows`` has the rows of records with their public bounds, ``margin_model`` the
   sum of losses over them that is solved.
4. **Kinds of programs.** ``first_stage`` is the base of programs of weights: ``separable`` and
   ``entropy`` of margins, ``direct_stage`` of weights as the variable, with ``arms``,
   ``moment_weights`` and ``given_problem`` as ways to declare one. ``second_stage`` is the weighted
   loss of theta.
5. **What was derived.** ``weights`` has the decorators, and :func:`describe`, which says in words
   what was derived of a program; ``standing`` says what is known in advance of a release.
   ``registry`` and ``files`` find programs by name and in files.
"""

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
