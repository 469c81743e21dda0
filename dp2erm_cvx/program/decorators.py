"""Programs declared as functions: the problem is written once in CVXPY, and the library derives the rest.

A decorated function becomes a program class, with the decorator's keywords as its settings. A setting is a
number, or a formula of the public numbers M and outcome_bound such as ``"M**2 / 10"``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dp2erm_cvx.program.declared import LossProgram, SeparableProgram, class_of
from dp2erm_cvx.program.rows import Setting
from dp2erm_cvx.program.weights import WeightsProgram

_Function = Callable[..., Any]


class Scheme:
    """Decorators of first stages: ``scheme`` itself of weights, ``scheme.separable`` of a loss of margins."""

    def __call__(self, **settings: Setting) -> Callable[[_Function], Any]:
        """Decorator of ``function(w, records, **settings) -> cp.Problem`` in the weights w (n,).

        The library adds ``w >= 0`` and ``sum(w) = n``. The objective holds ``c * sum_squares(w - 1)`` or the
        like, which keeps the weights unique; constraints are public. V is 2n, or what the author states:
        ``@f.bound`` of a function of n, M, outcome_bound and settings that returns a
        :class:`~dp2erm_cvx.stability.Bound`.

        Raises DeclarationError, in one line, for whatever is not read.
        """

        def decorate(function: _Function) -> Any:
            return class_of(function, WeightsProgram, {}, settings)

        return decorate

    @staticmethod
    def separable(
        *, ridge: Setting, radius: Setting = math.inf, **settings: Setting
    ) -> Callable[[_Function], Any]:
        """Decorator of ``function(s, **settings) -> (loss, log weight)``, expressions of one scalar margin s.

        The program minimizes ``sum_i loss(<z_i, v>) + n ridge/2 ||v||^2`` over ``||v|| <= radius``, with the
        rows ``z_i = (2 a_i - 1) x_i``; then ``w_i`` is proportional to ``exp(log weight)`` at the same
        margin, with sum n. The loss is convex, the log weight any expression. Stability, certificates and
        noise are derived (Theorems 3, 22 and 23).

        Raises DeclarationError, in one line, for whatever is not read or has no bound.
        """

        def decorate(function: _Function) -> Any:
            return class_of(function, SeparableProgram, {"ridge": ridge, "radius": radius}, settings)

        return decorate


#: Decorators of first stages, ``@scheme(...)`` and ``@scheme.separable(...)``, see :class:`Scheme`.
scheme = Scheme()


def second_stage(**settings: Setting) -> Callable[[_Function], Any]:
    """Decorator of ``function(theta, records, **settings) -> cp.Problem``, the sum of a loss over records.

    Weights, the ridge gamma and noise are the library's. The loss is a sum of curves of one margin per
    record, with a factor, an offset and a tilt; the set of theta is a ball, an l1 ball or a box. ``records``
    is described at :class:`~dp2erm_cvx.program.rows.DeclaredRecords`. Constants, noise and certificates are
    derived (Theorems 1, 2 and 15 to 19).

    Raises DeclarationError, in one line, for whatever is not read or has no bound.
    """

    def decorate(function: _Function) -> Any:
        return class_of(function, LossProgram, {}, settings)

    return decorate
