"""What a scheme file imports: the abstract stages, their building blocks and declarations."""

from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.model.sets import Box, ConvexSet, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.privacy import LossConstants, StabilityBound
from dp2erm_cvx.program.balance import BalanceFunctions, Moments
from dp2erm_cvx.program.curves import Curve, Part
from dp2erm_cvx.program.declaration import Declaration, Leaves, Value
from dp2erm_cvx.program.declared import private
from dp2erm_cvx.program.direct_stage import DirectFirstStage
from dp2erm_cvx.program.entropy import RidgedEntropyFirstStage
from dp2erm_cvx.program.first_stage import BalancedStage, ClosedFormWeights, FirstStage, PrivateFirstStage
from dp2erm_cvx.program.kernel_model import PublicSample
from dp2erm_cvx.program.kernel_stage import ArmKernelStage, PooledKernelStage
from dp2erm_cvx.program.kernels import BalanceKernel, Gaussian, Kernel
from dp2erm_cvx.program.linear_stage import LinearLeastSquares, LinearStage
from dp2erm_cvx.program.log_weights import LogWeight
from dp2erm_cvx.program.margin_rows import MarginRows, RowBounds
from dp2erm_cvx.program.rows import Ball
from dp2erm_cvx.program.second_stage import SecondStage, WeightedLeastSquares
from dp2erm_cvx.program.separable import PrivateSeparable, SeparableFirstStage
from dp2erm_cvx.program.stage import Instance, Kind, Program, setting
from dp2erm_cvx.program.weights import scheme, second_stage
from dp2erm_cvx.public import public_number, public_size
from dp2erm_cvx.stability import Bound
from dp2erm_cvx.universe import Universe

__all__ = [
    "ArmKernelStage",
    "Array",
    "BalanceFunctions",
    "BalanceKernel",
    "BalancedStage",
    "Ball",
    "Bound",
    "Box",
    "ClosedFormWeights",
    "ConvexSet",
    "Curve",
    "Declaration",
    "DirectFirstStage",
    "Domain",
    "FirstStage",
    "Gaussian",
    "Instance",
    "Kernel",
    "Kind",
    "L1Ball",
    "L2Ball",
    "Leaves",
    "LinearLeastSquares",
    "LinearStage",
    "LogWeight",
    "LossConstants",
    "MarginRows",
    "Moments",
    "Part",
    "PooledKernelStage",
    "PrivateFirstStage",
    "PrivateSeparable",
    "Program",
    "PublicSample",
    "Records",
    "RidgedEntropyFirstStage",
    "RowBounds",
    "SecondStage",
    "SeparableFirstStage",
    "StabilityBound",
    "Universe",
    "Value",
    "WeightedLeastSquares",
    "WholeSpace",
    "private",
    "public_number",
    "public_size",
    "scheme",
    "second_stage",
    "setting",
]
