"""Every refusal of a calibration, once: a call that works, what is changed of it, and the one
line.
"""

import math
from dataclasses import replace

import pytest

from dp2erm_cvx.calibration import (
    Noise,
    Objective,
    SumLaw,
    calibrate,
    calibrate_output,
    calibrate_renyi,
    calibrate_saturating,
    calibrate_sums,
    privacy_loss,
    renyi_divergence,
    renyi_epsilon,
    saturating_epsilon,
    utility_bound,
)
from dp2erm_cvx.calibration.numbers import calibrate_grid, calibrate_integers
from dp2erm_cvx.curves.loss_constants import LossConstants
from dp2erm_cvx.curves.suprema import Saturation
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.paper import PrintedBound, calibrate_paper
from dp2erm_cvx.privacy import Budget, Neighboring, RenyiCurve, StabilityBound
from dp2erm_cvx.steps.calibrators import CALIBRATORS, calibrator
from dp2erm_cvx.steps.fit import calibrate_multinomial
from tests.helpers import BOUNDED_INFLUENCE

KEEP = Neighboring.REPLACE_ONE_KEEP_TREATMENT
LOSS = LossConstants(5, 6.0, 2.0, 0.0, 2.0, 1.0, gradient_bound=9.0)
SQUARED = LossConstants(5, math.inf, 2.0, 0.0, None, 2.0, covariate_bound=1.0, response_bound=2.0)
MEAN = LossConstants(
    1, 4.0, 2.0, 0.0, None, 1.0, covariate_bound=1.0, response_bound=6.0, is_mean=True
)
SHAPE = Saturation(BOUNDED_INFLUENCE["1 - u"][0](0.5, 1.0), 2.0)
BENT = LossConstants(5, 1.0, 4.0, 0.0, None, 1.0, saturation=SHAPE)
LOSSES = {"renyi": SQUARED, "output": MEAN, "saturating": BENT}
LOSSES |= dict.fromkeys(("sharp", "paper", "multinomial"), LOSS)


def bound_of(V=6.0, kind=PrintedBound, **changes):
    facts = {
        "theorem": "Theorem X",
        "assumptions": (),
        "relations": frozenset(Neighboring),
        "w_max": 3.0,
    }
    if kind is PrintedBound:
        facts |= {"W1": V, "W2": V}
    return kind(V=V, **(facts | changes))


def calibrated(name, bound=None, n=400, budget=None, loss=None, **options):
    """A calibration by name at a good declaration, of which something is changed."""
    known = LOSSES[name] if loss is None else replace(LOSSES[name], **loss)
    objective = Objective(bound_of() if bound is None else bound, known, n)
    ways = {
        "sharp": calibrate,
        "paper": calibrate_paper,
        "renyi": calibrate_renyi,
        "output": calibrate_output,
        "saturating": calibrate_saturating,
        "multinomial": lambda objective, budget: calibrate_multinomial(objective, 1.0, 3, budget),
    }
    return ways[name](objective, budget or Budget(1.0, 1e-4), **options)


def summed(law=SumLaw.SCORE, bound=1.0, n=100, budget=None, *more, **options):
    return calibrate_sums(law, bound, n, budget or Budget(1.0, 1e-6), *more, **options)


#: Of every calibration by a bound.
UNCOVERED = [
    ({"bound": bound_of(private=False)}, "read off the data"),
    ({"bound": bound_of(relations=frozenset([KEEP]))}, "'replace-one'"),
    ({"bound": bound_of(math.inf)}, "V = inf|W1 = inf"),
]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("change", "message"), UNCOVERED)
def test_what_a_bound_does_not_cover(name, change, message):
    assert calibrated(name).scale > 0
    with pytest.raises(CalibrationError, match=message) as caught:
        calibrated(name, **change)
    assert "\n" not in str(caught.value)
    with pytest.raises(DeclarationError, match="n_samples"):
        calibrated(name, n=1)


def of(name, **change):
    """A call of the calibration by this name, with a change."""
    return lambda: calibrated(name, **change)


SHARP, CURVED = calibrated("sharp"), calibrated("sharp", noise="gaussian")
STEEP = Saturation(BOUNDED_INFLUENCE["1 - u"][0](1e99, 1.0), 1e60)
NONE_FITS = Objective(bound_of(8.0), replace(SQUARED, covariate_bound=None), 400, weights="b")
NO_WAY = r"valid: b, sharp-gamma: .*; b, renyi: Theorem 7"
UNCALIBRATED = [
    *((of("sharp", bound=bound_of(V)), f"V = {V!r}") for V in (math.nan, 0.0)),
    *((of("sharp", budget=Budget(e)), f"epsilon = {e!r}") for e in (1e-320, 1e7)),
    (of("sharp", budget=Budget(1.0), noise="gaussian"), "delta = 0.0"),
    (of("sharp", budget=Budget(1.0, 1e-301), noise="gaussian"), "delta = 1e-301"),
    (of("sharp", loss={"gradient_radius": 1e300}, split=0.5), r"noise scale = 1.2e\+301"),
    (of("sharp", loss={"gradient_radius": math.inf}), "noise scale = inf"),
    *((of("sharp", loss={"hessian_trace": trace}), "gamma = ") for trace in (1e-300, math.inf)),
    (of("paper", bound=bound_of(kind=StabilityBound)), "no W1 and W2"),
    (of("paper", bound=bound_of(W2=math.inf)), "W2 = inf"),
    (of("paper", noise="gaussian", budget=Budget(1.0)), "delta = 0.0"),
    (of("paper", loss={"gradient_bound": 1e295}), "out of floating-point range"),
    (of("paper", loss={"gradient_bound": None}), "states no gradient_bound"),
    (of("renyi", budget=Budget(1.0)), "delta = 0.0"),
    (of("renyi", bound=bound_of(1e300)), "out of floating-point range"),
    (of("renyi", gamma=1e-5, budget=Budget(0.1, 1e-6)), "no order fits .* at gamma = 1e-05"),
    (of("renyi", loss={"covariate_bound": None}), "needs a squared loss"),
    *((of("multinomial", budget=Budget(e)), f"epsilon = {e!r}") for e in (1e-120, 1e7)),
    (of("output", budget=Budget(1e-320)), "epsilon = 1e-320"),
    (of("output", loss={"response_bound": 2e295}), "out of floating-point range"),
    (of("saturating", loss={"saturation": None}), "states no saturation"),
    (of("saturating", loss={"saturation": STEEP}), "noise scale"),
    *((lambda s=s: calibrate_grid(s, 3, 1.0), "rescale the outcome") for s in (1e300, 1e-300)),
    (lambda: calibrate_grid(1e-100, 3, 1e200), "epsilon"),
    (lambda: summed(n=10**10), "beyond 64-bit"),
    (lambda: summed(SumLaw.TREATED, n=10**9), "beyond 64-bit"),
    (lambda: summed(budget=Budget(1e-9)), "out of the range of 64-bit"),
    (lambda: calibrate_integers(2**62, Budget(0.5)), "out of the range of 64-bit"),
    (lambda: summed(SumLaw.SCORE, 1.0, 100, Budget(1.0), "gaussian"), "needs a delta"),
    (lambda: saturating_epsilon(CURVED, BENT, 400), "gamma noise"),
    (lambda: calibrator("auto").calibrate(NONE_FITS, Budget(1.0), "gamma"), NO_WAY),
]
#: Orders and divergences that are no curve.
CURVES = [
    ((), (), "orders"), ((2.0,), (1.0, 2.0), "one divergence per order: 1, 2"), ((1.0,), (1.0,),
    "= 1.0"),
    ((math.nan,), (1.0,), "finite"), ((3.0, 2.0), (1.0, 1.0), "increase"), ((2.0,), (-1e-300,),
    "divergence"),
    ((2.0,), (math.nan,), "finite"), ((2.0,), ("much",), "number"), ((2.0,), (10**400,), "number"),
    (2.0, (1.0,), "list"), (tuple(range(2, 10_100)), (1.0,) * 10_098, "10000"),
]  # fmt: skip
CURVE = RenyiCurve.pure(1.0)
#: Of a loss that is declared: a constant, and what it must not be.
CONSTANTS = {
    "sharp": {"n_parameters": (0, 1.5), "gradient_radius": (0.0,), "hessian_trace": (0.0,),
              "strong_convexity": (-1.0,), "theta_bound": (0.0,), "outcome_bound": (math.nan,)},
    "paper": {"gradient_bound": (math.inf,), "hessian_trace": (0.0,)},
    "renyi": {"theta_bound": (-1.0,), "n_parameters": (0,), "covariate_bound": (0,),
    "response_bound": (0,)},
    "output": {"response_bound": (0.0,)},
}  # fmt: skip
SIZES = {"noise_norm": 1.0, "theta_norm": 1.0, "n_samples": 400, "calibration": SHARP}
UNDECLARED = [
    *(
        (of(name, loss={constant: value}), constant)
        for name, constants in CONSTANTS.items()
        for constant, values in constants.items()
        for value in values
    ),
    *((of("sharp", n=n), "n_samples") for n in (2.5, math.inf, "many")),
    *((of("sharp", split=q), "split") for q in (0.0, 1.0, -0.5, math.nan, "half")),
    *((of(name, noise="laplace"), "gamma, gaussian") for name in ("sharp", "paper")),
    (of("paper", loss={"gradient_bound": 5.9}), "at least the centered gradient radius 6"),
    (of("renyi", gamma=0.0), "gamma"),
    *(
        (of("saturating", loss={"saturation": replace(SHAPE, row_norm=M)}), "row_norm")
        for M in (0.0, -1.0, 1e155, math.inf)
    ),
    *((lambda s=s: calibrate_grid(s, 3, 1.0), "l1_sensitivity") for s in (0.0, math.nan)),
    *((lambda e=e: calibrate_grid(1.0, 3, e), "epsilon") for e in (0.0, math.nan, "much")),
    (lambda: summed(bound=math.inf), "score_bound"),
    (lambda: summed(SumLaw.SCORE, 1.0, 100, None, "uniform"), "noise"),
    (lambda: summed("sums"), "law = 'sums': must be one of score, contrasts"),
    (lambda: summed(SumLaw.ARMS, other_bound=2.0), "must be at most score_bound"),
    (lambda: summed(SumLaw.ARMS), "other_bound: for both arms alone"),
    (lambda: summed(other_bound=0.5), "other_bound: for both arms alone"),
    (lambda: summed().totals([0.5], [1.0]), "2 columns are not what"),
    (lambda: summed(SumLaw.OVERLAP).totals([1.0] * 4, [0.1]), "share of shape"),
    (lambda: privacy_loss(SHARP, LOSS, 400, -1.0), "epsilon"),
    *(
        (lambda one=one: utility_bound(**(SIZES | {one: -1.0})), one)
        for one in ("noise_norm", "theta_norm", "strong_convexity")
    ),
    *(
        (lambda o=o: renyi_divergence(o, 4.0, SQUARED, 400, 10.0, 1.0), "order")
        for o in (1.0, math.inf, math.nan)
    ),
    (lambda: renyi_divergence(2.0, 4.0, SQUARED, 400, 0.0, 1.0), "scale"),
    (lambda: renyi_epsilon([2.0], [1.0], 1.0), "delta"),
    (lambda: renyi_epsilon([2.0], [-1.0], 0.1), "divergence"),
    *((lambda o=o, d=d: RenyiCurve(o, d), message) for o, d, message in CURVES),
    *(
        (lambda call=call, bad=bad: call(bad), "epsilon|level|order")
        for call in (RenyiCurve.pure, CURVE.shifted, CURVE.at)
        for bad in (-1.0, math.nan, math.inf, "x")
    ),
    (lambda: CURVE.at(1.0), "order"),
    (lambda: RenyiCurve.pure(1.0, (0.5, 2.0)), "order"),
]
REFUSED = [(CalibrationError, *r) for r in UNCALIBRATED] + [
    (DeclarationError, *r) for r in UNDECLARED
]


@pytest.mark.parametrize(("error", "call", "message"), REFUSED)
def test_bad_constants_are_refused_in_one_line(error, call, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_other_neighbors_are_covered_where_they_are_declared():
    weaker = bound_of(relations=frozenset([KEEP]))
    assert calibrate(Objective(weaker, LOSS, 400, KEEP), Budget(1.0)).scale > 0
    assert {one.name for one in CALIBRATORS} >= {"sharp", "paper", "renyi", "output"}
    assert (
        calibrator("sharp")
        .calibrate(Objective(bound_of(), LOSS, 400), Budget(1.0), Noise.GAMMA)
        .scale
        > 0
    )
