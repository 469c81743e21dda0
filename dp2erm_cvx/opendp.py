"""A release as a measurement of OpenDP, to be composed there with others."""

from __future__ import annotations

import math
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.privacy import Budget, Neighboring
from dp2erm_cvx.public import whole_number
from dp2erm_cvx.solve import by_design, private_solver

if TYPE_CHECKING:
    from opendp.mod import Measurement

#: OpenDP has to be told that a user vouches for a measurement.
_FEATURES = ("contrib", "honest-but-curious")


def as_opendp_measurement(model: PrivateTwoStageERM, n_samples: int, n_features: int) -> Measurement:
    """The release of ``model`` as an ``opendp.mod.Measurement``.

    - Argument: a raw dataset ``(X, a, y)``, arrays of shapes (n, k), (n,) and (n,) without nan or inf, with a
      in {0, 1} and the declared number of records in each arm, if any. Value: theta (p,) as a list of floats.
    - Input metric: ``hamming_distance()``, the number of positions whose record is replaced. A reordered
      dataset is another one: rounding and base measures tell them apart.
    - Output measure: ``max_divergence()`` where the plan guarantees delta = 0, otherwise
      ``approximate(max_divergence())``.
    - Privacy map: the guarantee of the plan for one record, :func:`group_privacy` for several, which are
      refused where an arm floor is declared: datasets between two of the universe may be outside it.

    The measurement is of ``model`` as it is declared now. Every call fits a fresh copy, whose workings are
    dropped, and warns where a solution could not be certified: the guarantee is conditional on it.

    Needs the extra ``secure``, and OpenDP's features "contrib" and "honest-but-curious", which the caller
    enables: OpenDP takes this package's word. Raises DeclarationError where those are missing, for a seeded
    model, one with a ledger, a relation that does not protect the treatment, arithmetic that is not counted,
    and programs or solvers that are not known to certify every dataset; CalibrationError where the plan is
    not proven.
    """
    _refuse(model)
    # the map and the release have to speak of one declaration, whatever becomes of the caller's
    model = clone(model)
    n = whole_number("n_samples", n_samples, at_least=2)
    k = whole_number("n_features", n_features, at_least=1)
    plan = model.plan(n, k)
    if not (plan.certified_by_design and by_design(private_solver(model.solver))):
        raise DeclarationError(
            "the declared programs and solvers are not known to certify every dataset, which would leave "
            "releases conditional on certification"
        )
    if not plan.proven:
        raise CalibrationError(f"{plan.main.reason}, which is not proven: OpenDP composes only what is")
    _require_opendp()
    if not plan.counted:
        raise DeclarationError(
            "arithmetic: this release assumes exact arithmetic, which no map of OpenDP says: count it"
        )
    from opendp.domains import user_domain
    from opendp.measurements import make_user_measurement
    from opendp.measures import approximate, max_divergence
    from opendp.metrics import hamming_distance

    guarantee, floor = plan.guarantee, model.domain.arm_floor

    def is_member(data: Any) -> bool:
        try:
            _check(model, data, n, k)
        except (DataError, DeclarationError):
            return False
        return True

    def release(data: Any) -> list[float]:
        # OpenDP does not ask the domain before it calls
        _check(model, data, n, k)
        fresh: PrivateTwoStageERM = clone(model).fit(*data)
        if not fresh.release_.private:
            warnings.warn(f"this release: {fresh.release_.guarantee}", RuntimeWarning, stacklevel=2)
        return list(fresh.release_.theta)

    def privacy_map(d_in: int) -> float | tuple[float, float]:
        if floor is not None and d_in > 1:
            raise CalibrationError("an arm floor is declared: the guarantee covers one replaced record")
        if d_in == 0:
            return (0.0, 0.0) if guarantee.delta else 0.0
        group = group_privacy(guarantee, d_in)
        return (group.epsilon, group.delta) if guarantee.delta else group.epsilon

    columns = model.domain.columns
    named = f"k = {k}" if columns is None else f"columns {', '.join(columns)}"
    return make_user_measurement(
        user_domain(f"(X, a, y) with n = {n}, {named}, arm floor {floor or 0}", is_member),
        hamming_distance(),
        approximate(max_divergence()) if guarantee.delta else max_divergence(),
        release,
        privacy_map,
        TO="Vec<f64>",
    )


def group_privacy(guarantee: Budget, records: int) -> Budget:
    """(epsilon, delta) for datasets that differ in ``records`` >= 1 records, rounded up.

    A chain of neighbors: ``d epsilon`` and ``delta (1 + e^epsilon + ... + e^((d-1) epsilon))`` (Dwork & Roth
    2014, section 2.3). Raises DeclarationError for an invalid number, CalibrationError where delta reaches 1.
    """
    d = whole_number("records", records, at_least=1)
    if d == 1:
        return guarantee
    epsilon = math.nextafter(d * guarantee.epsilon, math.inf)
    try:
        grown = math.expm1(d * guarantee.epsilon) / math.expm1(guarantee.epsilon) * (1 + 1e-12)
    except OverflowError:
        grown = math.inf
    delta = guarantee.delta * grown if guarantee.delta else 0.0
    if not (delta < 1.0 and math.isfinite(epsilon)):
        raise CalibrationError(f"{d} records: delta = {guarantee.delta:g} leaves no guarantee for so many")
    return Budget(epsilon, delta)


def _refuse(model: PrivateTwoStageERM) -> None:
    if not isinstance(model, PrivateTwoStageERM):
        raise DeclarationError(f"{type(model).__name__}: must be a PrivateTwoStageERM")
    if model.seed is not None:
        raise DeclarationError("a seeded model is not private: leave the seed out")
    if (model.ledger or model.dataset) is not None:
        raise DeclarationError("OpenDP counts what is spent: leave ledger and dataset out")
    if (relation := model.domain.relation) is not Neighboring.REPLACE_ONE:
        raise DeclarationError(f"OpenDP counts any replaced record; the domain declares {relation}")


def _require_opendp() -> None:
    if find_spec("opendp") is None:
        raise DeclarationError("a measurement of OpenDP needs the extra: pip install 'dp2erm-cvx[secure]'")
    from opendp.mod import OpenDPException, assert_features

    try:
        assert_features(*_FEATURES)
    except OpenDPException:
        raise DeclarationError(
            'enable what OpenDP asks for first: opendp.mod.enable_features("contrib", "honest-but-curious")'
        ) from None


def _check(model: PrivateTwoStageERM, data: Any, n: int, k: int) -> None:
    """Raise DataError unless ``data`` is in the universe of the guarantee."""
    if not isinstance(data, tuple) or len(data) != 3:
        raise DataError("a dataset is a tuple (X, a, y)")
    dataset = Dataset.declared(model.public(), *data)
    if np.shape(dataset.X) != (n, k):
        raise DataError(f"X has shape {np.shape(dataset.X)}: the measurement was made for ({n}, {k})")
