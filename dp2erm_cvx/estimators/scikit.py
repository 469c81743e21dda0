"""The interface of scikit-learn: nested settings, and what its searches and pipelines may not do."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from dp2erm_cvx import registry
from dp2erm_cvx.errors import DeclarationError, known_names

#: What has settings of its own, which are reached as ``first_stage__ridge`` and ``budget__epsilon``.
_NESTED = ("domain", "budget", "first_stage", "second_stage")


class ConfiguredEstimator(BaseEstimator):  # type: ignore[misc]
    """Settings by name, those of programs, domain and budget included."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name; where ``deep``, those of programs, domain and budget as ``first_stage__ridge``.

        A program that is given by its name has its default settings.
        """
        params: dict[str, Any] = super().get_params(deep=False)
        for outer in _NESTED if deep else ():
            if outer in params:
                inner = _settings(built(outer, params[outer]))
                params |= {f"{outer}__{name}": value for name, value in inner.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change settings by name, ``first_stage__ridge`` and the like included.

        Programs, domains and budgets are never changed in place: a new one takes the place of the old.
        Raises DeclarationError for an unknown name or an invalid value; then nothing is changed.
        """
        known = self.get_params(deep=False)
        changed = {name: value for name, value in params.items() if "__" not in name}
        inner: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            outer, _, setting = name.partition("__")
            if setting:
                inner.setdefault(outer, {})[setting] = value
        _refuse_unknown(self, [*changed, *inner], known)
        for outer, values in inner.items():
            # the outer one may be new as well
            whole = built(outer, changed.get(outer, known[outer]))
            settings = _settings(whole) if outer in _NESTED else {}
            _refuse_unknown(
                self, [f"{outer}__{name}" for name in values], [f"{outer}__{name}" for name in settings]
            )
            changed[outer] = dataclasses.replace(whole, **values)
        for name, value in changed.items():
            setattr(self, name, value)
        return self

    def shared(self, study: type, *but: str) -> dict[str, Any]:
        """The settings that a ``study`` has as well, by name."""
        names = [one.name for one in dataclasses.fields(study) if one.name not in but]
        own = super().get_params(deep=False)
        return {name: own[name] for name in names if name in own and name not in _NESTED}

    def _saw(self, columns: tuple[str, ...]) -> None:
        """Remember the columns of a fit, as scikit-learn names them."""
        self.n_features_in_, self.feature_names_in_ = len(columns), np.array(columns, dtype=object)

    def _refuse_search(self) -> None:
        """Raise DeclarationError where a search or a cross-validation of scikit-learn fits the model.

        scikit-learn does not tell an estimator who fits it, so the callers are asked.
        """
        for frame in _callers():
            if frame.f_globals.get("__name__", "").startswith("sklearn.model_selection."):
                raise DeclarationError(self._no_score())

    def _fitted_before(self) -> tuple[str, ...]:
        """Names of the steps that a Pipeline around this fit has fitted to the same records.

        Steps of scikit-learn that learn nothing are none of them. A function counts unless it is a ufunc of
        numpy, as another may read all rows; so do steps of others, and frozen ones: nobody knows what they
        were fitted to. Only pipelines of scikit-learn are seen.
        """
        names: list[str] = []
        known = sys.modules.get("sklearn.pipeline")
        if known is None:  # nobody has made a pipeline
            return ()
        last: BaseEstimator = self
        for frame in _callers():
            pipeline = frame.f_locals.get("self")
            if isinstance(pipeline, known.Pipeline) and pipeline.steps[-1][1] is last:
                names += [name for name, step in pipeline.steps[:-1] if _learns(step)]
                last = pipeline  # perhaps the last step of another
        return tuple(names)

    def _no_score(self) -> str:
        """Why there is no score, and what compares candidates instead."""
        return (
            f"{type(self).__name__} has no score: one of private records is not private, and every fit of a "
            "search is a release that spends its budget again. Candidates are compared by dp2erm_cvx.design "
            "on public records, or by tune_privately, which charges a ledger for all of them"
        )


def built(outer: str, value: Any) -> Any:
    """The program of a name; anything else as it stands. Raises ProgramError for an unknown name."""
    known: dict[str, Any] = {"first_stage": registry.first_stages, "second_stage": registry.second_stages}
    return registry.build(known[outer](), value) if isinstance(value, str) and outer in known else value


def _settings(value: Any) -> dict[str, Any]:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return {}
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}


def _refuse_unknown(model: BaseEstimator, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise DeclarationError(
                f"{type(model).__name__} has no setting {name!r}; {known_names(name, sorted(known))}"
            )


def _learns(step: Any) -> bool:
    if step is None or step == "passthrough":
        return False
    function = getattr(step, "func", None)
    elementwise = isinstance(function, np.ufunc) and function.signature is None
    ours = type(step).__module__.startswith("sklearn.") and (function is None or elementwise)
    return not ours or bool(step.__sklearn_tags__().requires_fit)


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
