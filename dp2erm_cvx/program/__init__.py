"""What a problem file imports: the abstract stages, their building blocks and declarations."""

from dp2erm_cvx.domain import Array, Domain, Records, clip_norm
from dp2erm_cvx.privacy import LossConstants, Neighboring, StabilityBound
from dp2erm_cvx.program.arm_kernel_stage import ArmKernelStage
from dp2erm_cvx.program.balance import (
    BalanceFunctions,
    Moments,
    checked_balance,
    moment_names,
    public_constant,
)
from dp2erm_cvx.program.certified_margins import RowBounds
from dp2erm_cvx.program.certified_radius import checked_perturbation
from dp2erm_cvx.program.certified_weights import kernel_weights_error
from dp2erm_cvx.program.composite import Composite, Penalty
from dp2erm_cvx.program.declaration import Compiled, Declaration, Leaves, Value, parameter_cost
from dp2erm_cvx.program.direct_stage import DirectFirstStage
from dp2erm_cvx.program.entropy import EntropyFirstStage, RidgedEntropyFirstStage
from dp2erm_cvx.program.exponential import ExponentialModel, HardExponentialModel
from dp2erm_cvx.program.factored_model import FactoredKernelModel
from dp2erm_cvx.program.feasibility import refuse_infeasible
from dp2erm_cvx.program.first_stage import (
    ClosedFormWeights,
    FirstStage,
    PrivateFirstStage,
    public_radius,
    public_ridge,
    refuse_unproved,
    resolved,
)
from dp2erm_cvx.program.gram_memory import refuse_gram
from dp2erm_cvx.program.hard_balance_model import HardBalanceModel
from dp2erm_cvx.program.kernel_model import KernelModel
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.kernels import BalanceKernel, Energy, Gaussian, Kernel, Laplace, Linear, factor
from dp2erm_cvx.program.kind import Kind
from dp2erm_cvx.program.least_squares import LeastSquaresModel
from dp2erm_cvx.program.linear_rule import LinearStage, squared_gradient_radius
from dp2erm_cvx.program.margin_loss import ExponentialLoss, HuberLoss, LogisticLoss, MarginLoss
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_stage import MarginFirstStage
from dp2erm_cvx.program.margin_weight import InversePropensity, MarginWeight, Overlap
from dp2erm_cvx.program.matching_model import MatchingModel
from dp2erm_cvx.program.moment_target import MomentTargets
from dp2erm_cvx.program.neighbors import ReplacedRows, RowNeighbors
from dp2erm_cvx.program.pooled_kernel_stage import PooledKernelStage
from dp2erm_cvx.program.private_separable import PrivateSeparable
from dp2erm_cvx.program.public_sample import PublicSample
from dp2erm_cvx.program.random_features import RandomFourier, checked_kernel
from dp2erm_cvx.program.regularizer import ElasticNet, UserRegularizer
from dp2erm_cvx.program.second_stage import SecondStage
from dp2erm_cvx.program.separable_stage import SeparableFirstStage
from dp2erm_cvx.program.sets import Box, ConvexSet, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.program.simplex import Simplices
from dp2erm_cvx.program.stage import Instance, Program
from dp2erm_cvx.program.sums import sum_units
from dp2erm_cvx.program.tilting_rows import TiltingRows
from dp2erm_cvx.program.weighted_least_squares import WeightedLeastSquares
from dp2erm_cvx.program.weighted_margin_loss import MarginRows, WeightedMarginLoss
from dp2erm_cvx.program.weights import GRID_ERROR, weights_on_grid
from dp2erm_cvx.public import public_number, public_size
from dp2erm_cvx.stability import SeparableConstants
from dp2erm_cvx.universe import Universe

__all__ = [
    "GRID_ERROR",
    "ArmKernelStage",
    "Array",
    "BalanceFunctions",
    "BalanceKernel",
    "Box",
    "ClosedFormWeights",
    "Compiled",
    "Composite",
    "ConvexSet",
    "Declaration",
    "DirectFirstStage",
    "Domain",
    "ElasticNet",
    "Energy",
    "EntropyFirstStage",
    "ExponentialLoss",
    "ExponentialModel",
    "FactoredKernelModel",
    "FirstStage",
    "Gaussian",
    "HardBalanceModel",
    "HardExponentialModel",
    "HuberLoss",
    "Instance",
    "InversePropensity",
    "Kernel",
    "KernelFirstStage",
    "KernelModel",
    "Kind",
    "L1Ball",
    "L2Ball",
    "Laplace",
    "LeastSquaresModel",
    "Leaves",
    "Linear",
    "LinearStage",
    "LogisticLoss",
    "LossConstants",
    "MarginFirstStage",
    "MarginLoss",
    "MarginModel",
    "MarginRows",
    "MarginWeight",
    "MatchingModel",
    "MomentTargets",
    "Moments",
    "Neighboring",
    "Overlap",
    "Penalty",
    "PooledKernelStage",
    "PrivateFirstStage",
    "PrivateSeparable",
    "Program",
    "PublicSample",
    "RandomFourier",
    "Records",
    "ReplacedRows",
    "RidgedEntropyFirstStage",
    "RowBounds",
    "RowNeighbors",
    "SecondStage",
    "SeparableConstants",
    "SeparableFirstStage",
    "Simplices",
    "StabilityBound",
    "TiltingRows",
    "Universe",
    "UserRegularizer",
    "Value",
    "WeightedLeastSquares",
    "WeightedMarginLoss",
    "WholeSpace",
    "checked_balance",
    "checked_kernel",
    "checked_perturbation",
    "clip_norm",
    "factor",
    "kernel_weights_error",
    "moment_names",
    "parameter_cost",
    "public_constant",
    "public_number",
    "public_radius",
    "public_ridge",
    "public_size",
    "refuse_gram",
    "refuse_infeasible",
    "refuse_unproved",
    "resolved",
    "squared_gradient_radius",
    "sum_units",
    "weights_on_grid",
]
