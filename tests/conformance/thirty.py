"""Wrong programs, each with a few words changed; most depend on extremes or keep state."""

from __future__ import annotations

from tests.conformance.planted import BEFORE

_KERNEL = "    @property\n    def kernel(self"
_IMPORTS = "from dataclasses import dataclass"

Pairs = list[tuple[str, str]]


def _rows(body: str) -> Pairs:
    """An exponential program whose rows Z come from ``body``."""
    method = f"    def rows(self, records):\n        Z = super().rows(records)\n        {body}\n\n"
    return [(BEFORE, method + BEFORE)]


def _instance(size: str, changes: str, before: str = BEFORE) -> Pairs:
    """A program that is bound with other settings, of which ``size`` is read off the records."""
    method = (
        "    def instance(self, records):\n        import dataclasses\n\n"
        f"        X = records.X\n        size, own = float({size}), self.resolve(records.domain)\n"
        f"        other = dataclasses.replace(own, {changes})\n"
        "        return super(type(self), other).instance(records)\n\n"
    )
    return [(before, method + before), (_IMPORTS, f"import numpy as np\n{_IMPORTS}")]


def _constants(changes: str) -> Pairs:
    """A loss with other constants than those that are derived."""
    method = (
        "    def loss_constants(self, universe):\n        found = super().loss_constants(universe)\n"
        f"        return dataclasses.replace(found, {changes})\n\n"
    )
    return [("    def rows(self", method + "    def rows(self")]


def _state(name: str) -> tuple[str, str]:
    return ("@dataclass(frozen=True)", f"{name}\n\n\n@dataclass(frozen=True)")


_OFFSET = "        o = 2.0 * (2 * records.a - 1) * records.y\n"

#: What one record alone can decide, or what a file keeps between datasets.
DEPENDENT: dict[str, tuple[str, Pairs]] = {
    "rows over the range of a covariate": (
        "exponential",
        _rows("return Z / (1 + np.ptp(records.covariates[:, 0]))"),
    ),
    "rows of ranks": (
        "exponential",
        _rows("return Z * (1 + np.argsort(np.argsort(records.covariates[:, 0])))[:, None] / len(Z)"),
    ),
    "ridge by distinct values": (
        "exponential",
        _instance("1 + (len(np.unique(records.covariates[:, 0])) < len(X))", "ridge=own.ridge * size"),
    ),
    "radius by the longest treated row": (
        "exponential",
        _instance(
            "np.max(np.linalg.norm(X, axis=1), where=records.a == 1, initial=0.1)", "radius=0.3 * size"
        ),
    ),
    "ridge by the second longest row": (
        "exponential",
        _instance("np.sort(np.linalg.norm(X, axis=1))[-2] + 0.1", "ridge=own.ridge * size"),
    ),
    "the largest row of all datasets so far": (
        "exponential",
        [*_rows("SEEN.append(np.max(np.abs(Z)) + 1)\n        return Z / max(SEEN)"), _state("SEEN = []")],
    ),
    "rows kept by their number": (
        "exponential",
        [*_rows("return KEPT.setdefault(len(Z), Z)"), _state("KEPT = {}")],
    ),
    "every second call": (
        "exponential",
        [*_rows("CALLS.append(1)\n        return Z / (1 + len(CALLS) % 2)"), _state("CALLS = []")],
    ),
    "outcomes over the largest treated one": (
        "loss",
        [(_OFFSET, _OFFSET + "        o = o / (1 + np.max(np.abs(records.y) * records.a))\n")],
    ),
    "factors of the longest row": (
        "loss",
        [("np.ones(len(o))", "np.full(len(o), 1 / (1 + np.max(np.abs(records.covariates[:, 0]))))")],
    ),
    "outcomes cut at a quantile": (
        "loss",
        [(_OFFSET, _OFFSET + "        o = np.minimum(o, np.quantile(o, 0.95))\n")],
    ),
    "ridge by the larger arm": (
        "quadratic",
        _instance(
            "1 + max(records.a.mean(), 1 - records.a.mean())", "ridge=own.ridge * size", before=_KERNEL
        ),
    ),
    "functions bounded by the longest row": (
        "quadratic",
        _instance("0.1 + np.max(np.linalg.norm(X, axis=1))", "norm_bound=size", before=_KERNEL),
    ),
    "outcomes less the first mean": (
        "loss",
        [
            (
                _OFFSET,
                "        MEAN.append(records.y.mean())\n"
                + _OFFSET.replace("records.y", "(records.y - MEAN[0])"),
            ),
            _state("MEAN = []"),
        ],
    ),
}

#: Constants, functions and noise of an author's own.
OTHERS: dict[str, tuple[str, Pairs]] = {
    "longer rows of the treated": ("exponential", _rows("return Z * (1 + 0.4 * records.a)[:, None]")),
    "noise in the rows": (
        "exponential",
        _rows("return 0.9 * Z * np.random.default_rng().uniform(size=(len(Z), 1))"),
    ),
    "half the trace": ("loss", _constants("hessian_trace=0.5 * found.hessian_trace")),
    "half the gradient radius": ("loss", _constants("gradient_radius=0.5 * found.gradient_radius")),
    "outcomes of twice their bound": ("loss", [("o = 2.0 *", "o = 4.0 *")]),
    "noise in the functions": (
        "quadratic",
        [("np.concatenate([x, np.sin(x)])", "np.concatenate([x, np.random.default_rng().normal(size=1)])")],
    ),
    "half of a sum of squares": (
        "direct",
        [("return cp.sum_squares(weights - 1)", "return 0.5 * cp.sum_squares(weights - 1)")],
    ),
}
