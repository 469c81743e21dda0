"""A kernel that is declared by random features, for datasets whose Gram matrix does not fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.kernels import BandwidthKernel, Gaussian, Kernel, Laplace, Linear
from dp2erm_cvx.public import public_number


@dataclass(frozen=True)
class RandomFourier(BandwidthKernel):
    """``(1/D) sum_k cos(<omega_k, x - x'>)`` with D public frequencies omega_k ~ N(0, I / bandwidth^2).

    Its mean over seeds is the Gaussian kernel of the same bandwidth (Rahimi & Recht 2007), but it is a kernel
    in its own right: bounds hold for it, not for the kernel it approximates. The 2 D features are pairs of a
    cosine and a sine, so K(x, x) = 1 exactly; other entries may be negative, hence the constants for signed
    kernels. C = 1. ``frequencies`` is D; they are drawn from ``seed``.
    """

    frequencies: int = 100
    seed: int = 0

    signed = True
    word = "fourier"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least, most in (("frequencies", 1, 10_000), ("seed", 0, 2**63)):
            number = public_number(name, getattr(self, name), at_least=least)
            if number != int(number) or number > most:
                raise DeclarationError(
                    f"{name} = {getattr(self, name)!r}: must be a whole number up to {most}"
                )
            object.__setattr__(self, name, int(number))

    def features(self, X: Array) -> Array:
        angles = X @ self._frequencies(X.shape[1]).T
        pairs: Array = np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(self.frequencies)
        return pairs

    def cross(self, X: Array, Y: Array) -> Array:
        gram: Array = self.features(X) @ self.features(Y).T
        return gram

    def entry_error(self, features_bound: float, n_features: int) -> float:
        # an angle is off by the rounding of its inner product, which moves a pair along the circle by as much
        longest = float(np.max(np.linalg.norm(self._frequencies(n_features), axis=1)))
        pair = (n_features + 2) * longest * features_bound + 8.0
        return 2.0 * pair + 2.0 * self.frequencies + 8.0

    def _frequencies(self, n_features: int) -> Array:
        rng = np.random.default_rng([self.seed, self.frequencies, n_features])
        drawn: Array = rng.standard_normal((self.frequencies, n_features)) / self.bandwidth
        return drawn


def checked_kernel(kernel: Kernel) -> None:
    """Raise DeclarationError for a kernel of another type, whose bound would be taken on trust."""
    if type(kernel) not in (Gaussian, Laplace, Linear, RandomFourier):
        raise DeclarationError(f"kernel = {kernel!r}: must be Gaussian, Laplace, Linear or RandomFourier")
