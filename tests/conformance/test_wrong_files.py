"""Every kind of wrong file is caught."""

from __future__ import annotations

import pytest

from dp2erm_cvx.conformance import CheckStatus, checks_of
from dp2erm_cvx.conformance.statement import fixed_set, public_numbers
from tests.conformance.planted import BEFORE, changed, outcomes_of, program_of

_KERNEL = "    @property\n    def kernel(self"


def _own_theorem(ridge: str, kernel_bound: str = "found.kernel_bound", signed: str = "found.signed"):
    """Theorem 6 stated by the program, from constants other than its own."""
    return [
        (
            "from dp2erm_cvx.program import Array",
            "from dp2erm_cvx import stability\nfrom dp2erm_cvx.program import Array",
        ),
        (
            _KERNEL,
            "    def bound(self, universe):\n"
            "        n, found = universe.n_samples, self.constants(universe)\n"
            f"        wrong = type(found)({kernel_bound}, {ridge}, found.alpha, {signed})\n"
            f"        return stability.pooled_kernel_balancing(n, wrong)\n\n{_KERNEL}",
        ),
    ]


def _method(signature: str, *body: str) -> str:
    return f"    def {signature}:\n" + "".join(f"        {line}\n" for line in body) + "\n"


def _exponential(expected: str, signature: str, *body: str) -> tuple:
    """A method before those of a class of kind exponential."""
    return "exponential", [(BEFORE, _method(signature, *body) + BEFORE)], {expected}


def _rows(expected: str, *body: str) -> tuple:
    return _exponential(expected, "rows(self, records)", *body)


_UNIFORM = _method("bound(self, universe)", "return stability.uniform_weights(universe.n_samples)")
_CONVEX = "    def strong_convexity"
_STABILITY = (
    "from dp2erm_cvx.program import",
    "from dp2erm_cvx import stability\nfrom dp2erm_cvx.program import",
)
_UNREAD = ('cp.norm1(leaf("Z").T @ weights)', 'cp.norm(cp.abs(leaf("Z").T @ weights))')
_SIGNED = "(2 * records.a - 1)[:, None]"

#: By template: what is changed in it, and the checks of which one has to notice.
WRONG = {
    "rows that see other records": _rows(
        "own record", "Z = super().rows(records)", "return Z / max(1.0, 9 * np.max(np.abs(Z.mean(axis=0))))"
    ),
    "rows that are longer than declared": _rows("constants", "return 2 * super().rows(records)"),
    "the bound of uniform weights": ("exponential", [(BEFORE, _UNIFORM + BEFORE)], {"movement"}),
    "a bound off by the square root of n": (
        "quadratic",
        _own_theorem("n**0.5 * found.ridge"),
        {"audit", "movement"},
    ),
    "half a kernel bound": (
        "quadratic",
        _own_theorem("found.ridge", kernel_bound="found.kernel_bound / 2"),
        {"stated bound"},
    ),
    "a kernel of both signs taken for an unsigned one": (
        "quadratic",
        [("constant=self.norm_bound)", "constant=0.1)"), *_own_theorem("found.ridge", signed="False")],
        {"stated bound"},
    ),
    "twice the ridge in the bound": _exponential(
        "stated bound",
        "bound(self, universe)",
        "import dataclasses",
        "other = dataclasses.replace(self, ridge=2 * self.mu)",
        "return super(type(self), other).bound(universe)",
    ),
    "rows longer than their bound": (
        "exponential",
        [("return domain.covariate_bound", "return 1.0")],
        {"constants"},
    ),
    "covariates centered by the sample": _rows(
        "own record", f"return {_SIGNED} * (records.X - records.X.mean(axis=0))"
    ),
    "covariates scaled by the sample": _rows(
        "own record", f"return {_SIGNED} * records.X / (1 + records.X.std(axis=0))"
    ),
    "records in the problem past its leaves": (
        "direct",
        [
            ('cp.norm1(leaf("Z").T @ weights)', 'cp.norm1(held[0].T @ weights) + 0 * cp.sum(leaf("Z"))'),
            ("        # a product", "        held[0] = signed\n        # a product"),
            ("@dataclass", "held = [None]\n\n\n@dataclass"),
        ],
        {"declaration"},
    ),
    # of an objective that is not read
    "twice the strong convexity": ("direct", [_UNREAD, ("return 2.0", "return 4.0")], {"strong convexity"}),
    "no docstring": ("direct", [("minimize ", "find ")], {"statement"}),
    "no citation": ("direct", [('citation = "your paper"', 'citation = ""')], {"statement"}),
    "a datum that enters nowhere": (
        "direct",
        [
            ("        return cp.sum_squares", '        leaf("ones2")\n        return cp.sum_squares'),
            ('{"Z":', '{"ones2": 1.0, "Z":'),
        ],
        {"declaration"},
    ),
    "constraints on data declared as fixed": (
        "direct",
        [
            (
                _CONVEX,
                "    kind = Kind.QUADRATIC\n\n"
                + _method(
                    "constraints(self, leaf, weights)",
                    'return {"balance": leaf("Z").T @ weights <= 30.0}',
                )
                + _method(
                    "bound(self, universe)",
                    "constants = stability.KernelConstants(4.0, universe.n_samples)",
                    "return stability.pooled_kernel_balancing(universe.n_samples, constants)",
                )
                + _CONVEX,
            ),
            ("from dp2erm_cvx.program import Array,", "from dp2erm_cvx.program import Kind, Array,"),
            _STABILITY,
        ],
        {"fixed feasible set"},
    ),
    "a bound without a theorem": ("direct", [(_CONVEX, _UNIFORM + _CONVEX), _STABILITY], {"movement"}),
    "another function than declared": (
        "quadratic",
        [
            (
                _KERNEL,
                _method(
                    "data(self, records)",
                    "found = super().data(records)",
                    'return found | {"curvature": 40 * found["curvature"]}',
                )
                + _KERNEL,
            )
        ],
        {"solver agreement", "declaration and model"},
    ),
    "an error of its own": ("direct", [("return 2.0", "return records.nothing")], {"declaration"}),
}


#: What a careless author reads off the data, where often one record alone decides it.
EXTREMES = {
    "the longest row": "np.max(np.linalg.norm(records.X, axis=1))",
    "the shortest row": "np.min(np.linalg.norm(records.covariates, axis=1)) + 0.1",
    "the largest outcome": "np.max(np.abs(records.y)) + 0.1",
}


def _bound_otherwise(settings: str) -> str:
    return _method(
        "instance(self, records)",
        "import dataclasses",
        "size, own = float({size}), self.resolve(records.domain)",
        f"other = dataclasses.replace(own, {settings})",
        "return super(type(self), other).instance(records)",
    )


#: By what depends on an extreme: the template, before what the method is put, the method, and the check.
DEPENDENT = {
    "ridge": ("exponential", BEFORE, _bound_otherwise("ridge=own.ridge * size"), "public numbers"),
    "ridge of many": (
        "exponential",
        BEFORE,
        _bound_otherwise("ridge=own.ridge * (size if len(records.y) > 500 else 1.0)"),
        "public numbers",
    ),
    "radius": ("exponential", BEFORE, _bound_otherwise("radius=0.3 * size"), "fixed feasible set"),
    "rows": (
        "exponential",
        BEFORE,
        _method("rows(self, records)", "return super().rows(records) / (3.0 + {size})"),
        "own record",
    ),
    "quadratic ridge": ("quadratic", _KERNEL, _bound_otherwise("ridge=own.ridge * size"), "public numbers"),
    "offset": ("loss", "        o = 2.0 *", "        o = 2.0 / (3.0 + {size}) *", "own record"),
}


@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("case", DEPENDENT)
def test_what_one_extreme_record_decides_is_found(case, extreme, tmp_path):
    kind, place, method, expected = DEPENDENT[case]
    new = method.format(size=EXTREMES[extreme]) + ("" if case == "offset" else place)
    text = changed(kind, (place, new))
    if "import numpy" not in text:
        text = text.replace("from dataclasses", "import numpy as np\nfrom dataclasses", 1)
    cls = program_of(tmp_path / "mine.py", text)
    check = checks_of(cls)[expected]
    assert all(outcome.status is CheckStatus.FAILED for outcome in outcomes_of(check, cls))


def test_what_a_file_keeps_of_the_first_dataset_is_found(tmp_path):
    rows = (
        "    def rows(self, records):\n        Z = super().rows(records)\n"
        "        SCALE.append(min(1.0, np.abs(Z).mean()))\n        return SCALE[0] * Z\n\n"
    )
    text = changed("exponential", (BEFORE, rows + BEFORE), ("@dataclass", "SCALE = []\n\n\n@dataclass"))
    found = outcomes_of(public_numbers, program_of(tmp_path / "mine.py", text))
    assert all("the dataset before it" in outcome.detail for outcome in found)


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_found(case, tmp_path):
    kind, pairs, expected = WRONG[case]
    cls = program_of(tmp_path / "mine.py", changed(kind, *pairs))
    concerned = {name: check for name, check in checks_of(cls).items() if name in expected}
    assert len(concerned) == len(expected)
    outcomes = [outcome for check in concerned.values() for outcome in outcomes_of(check, cls)]
    assert any(outcome.status is CheckStatus.FAILED for outcome in outcomes), outcomes


def test_a_set_that_moves_by_its_authors_word_is_noted_and_not_passed(tmp_path):
    kind, pairs, _ = WRONG["constraints on data declared as fixed"]
    text = changed(
        kind, *pairs, ("    kind = Kind.QUADRATIC", '    kind = Kind.QUADRATIC\n    moving = {"Z"}')
    )
    found = outcomes_of(fixed_set, program_of(tmp_path / "mine.py", text))
    assert len(found) == 2
    for one in found:
        assert one.status is CheckStatus.NOTED
        assert "author" in one.detail
