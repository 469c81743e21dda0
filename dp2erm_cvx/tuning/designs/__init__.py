"""Which pipeline to take for n, epsilon and a stated guess of the world: found by simulation, for free."""

from dp2erm_cvx.tuning.designs.guess import Guess
from dp2erm_cvx.tuning.designs.question import DesignQuestion
from dp2erm_cvx.tuning.designs.result import DesignResult
from dp2erm_cvx.tuning.designs.row import DesignRow
from dp2erm_cvx.tuning.designs.run import design

__all__ = ["DesignQuestion", "DesignResult", "DesignRow", "Guess", "design"]
