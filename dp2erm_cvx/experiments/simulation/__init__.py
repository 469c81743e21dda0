"""The simulation study of the paper (its Figure 1), with every family of calibrations side by side."""

from dp2erm_cvx.experiments.simulation.experiment import Simulation

__all__ = ["Simulation"]
