"""What of a first stage's weights is proved, by the form of its program."""

from __future__ import annotations

import enum


class Kind(enum.StrEnum):
    """The form of a weighting program; it decides which theorem can bound the movement of its weights."""

    #: Each weight is a function of its own record, normalized once: V = 2 w_max.
    CLOSED_FORM = "closed form"
    #: Weights are a function of a coefficient with a ridge: Theorem 3 or 4.
    EXPONENTIAL = "exponential"
    #: The weights themselves minimize a strongly convex quadratic over a fixed set: Theorem 5, 6 or a
    #: stated one.
    QUADRATIC = "quadratic"
    #: A coefficient that is itself private: Theorem 9.
    PRIVATE = "private"
    #: Anything else. Without a theorem only the universal corollary holds, V <= 2n.
    DIRECT = "direct"

    @property
    def proved(self) -> str:
        """In words, what bounds the movement of weights of this kind."""
        return {
            Kind.CLOSED_FORM: "weights fixed up to normalization: V = 2 w_max",
            Kind.EXPONENTIAL: "a parametric program with a ridge: Theorem 3 or 4",
            Kind.QUADRATIC: "strongly convex on a fixed set: Theorem 5, 6 or a stated one",
            Kind.PRIVATE: "a private coefficient: Theorem 9",
            Kind.DIRECT: "no theorem, or hard constraints that depend on the data: universal corollary only",
        }[self]
