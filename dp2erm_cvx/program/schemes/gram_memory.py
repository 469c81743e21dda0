"""Whether a Gram matrix fits into memory, asked before anything is allocated. n is public."""

from __future__ import annotations

import os

from dp2erm_cvx.errors import DeclarationError

#: Matrices of n x n doubles that a solve holds at a time: K, Q, the Hessian, the Jacobian of the projection
#: and two products.
COPIES = 6
#: Bytes that are taken to be there where the system does not say.
_UNKNOWN = 16e9


def refuse_gram(n_samples: int) -> None:
    """Raise DeclarationError where the Gram matrix of ``n_samples`` records and its copies do not fit."""
    needed, there = COPIES * 8.0 * n_samples**2, _memory()
    if needed > there:
        raise DeclarationError(
            f"n = {n_samples:,}: a Gram matrix with its working copies needs {needed / 1e9:,.1f} GB, this "
            f"machine has {there / 1e9:,.1f}: declare a kernel with few features (RandomFourier, Linear)"
        )


def _memory() -> float:
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * float(os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN
