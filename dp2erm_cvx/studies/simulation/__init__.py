"""The simulation study of the paper (its Figure 1), with every family of calibrations side by side."""

from dp2erm_cvx.studies.simulation.experiment import Simulation

__all__ = ["Simulation"]
