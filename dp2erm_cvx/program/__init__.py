"""What a problem file imports: the abstract stages, their building blocks and declarations."""

from dp2erm_cvx.domain import Array, Domain, Records, clip_norm
from dp2erm_cvx.privacy import LossConstants, Neighboring, StabilityBound, public_number
from dp2erm_cvx.program.balance import BalanceFunctions, Moments
from dp2erm_cvx.program.composite import Composite, Penalty
from dp2erm_cvx.program.declaration import Compiled, Declaration, Leaves, Value, parameter_cost
from dp2erm_cvx.program.entropy import EntropyFirstStage, RidgedEntropyFirstStage
from dp2erm_cvx.program.exponential import ExponentialModel, HardExponentialModel
from dp2erm_cvx.program.factored_model import FactoredKernelModel
from dp2erm_cvx.program.first_stage import (
    ClosedFormWeights,
    FirstStage,
    PrivateFirstStage,
    public_radius,
    public_ridge,
    resolved,
)
from dp2erm_cvx.program.kernel_model import KernelModel
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.kernels import Gaussian, Kernel, Laplace, Linear, factor
from dp2erm_cvx.program.least_squares import LeastSquaresModel
from dp2erm_cvx.program.logistic import LogisticModel
from dp2erm_cvx.program.neighbors import ReplacedRows, RowNeighbors
from dp2erm_cvx.program.random_features import RandomFourier
from dp2erm_cvx.program.reach import logistic_reach, public_reach
from dp2erm_cvx.program.reach_weights import coefficient_weights_reach, logistic_weights_reach
from dp2erm_cvx.program.regularizer import ElasticNet, UserRegularizer
from dp2erm_cvx.program.second_stage import SecondStage, WeightedLeastSquares
from dp2erm_cvx.program.sets import Box, ConvexSet, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.program.simplex import Simplices
from dp2erm_cvx.program.stage import Instance, Program
from dp2erm_cvx.program.weights import GRID_ERROR, weights_on_grid

__all__ = [
    "GRID_ERROR",
    "Array",
    "BalanceFunctions",
    "Box",
    "ClosedFormWeights",
    "Compiled",
    "Composite",
    "ConvexSet",
    "Declaration",
    "Domain",
    "ElasticNet",
    "EntropyFirstStage",
    "ExponentialModel",
    "FactoredKernelModel",
    "FirstStage",
    "Gaussian",
    "HardExponentialModel",
    "Instance",
    "Kernel",
    "KernelFirstStage",
    "KernelModel",
    "L1Ball",
    "L2Ball",
    "Laplace",
    "LeastSquaresModel",
    "Leaves",
    "Linear",
    "LogisticModel",
    "LossConstants",
    "Moments",
    "Neighboring",
    "Penalty",
    "PrivateFirstStage",
    "Program",
    "RandomFourier",
    "Records",
    "ReplacedRows",
    "RidgedEntropyFirstStage",
    "RowNeighbors",
    "SecondStage",
    "Simplices",
    "StabilityBound",
    "UserRegularizer",
    "Value",
    "WeightedLeastSquares",
    "WholeSpace",
    "clip_norm",
    "coefficient_weights_reach",
    "factor",
    "logistic_reach",
    "logistic_weights_reach",
    "parameter_cost",
    "public_number",
    "public_radius",
    "public_reach",
    "public_ridge",
    "resolved",
    "weights_on_grid",
]
