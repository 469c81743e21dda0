"""Kernels with few features: the same weights as by a Gram matrix, without ever forming one."""

import math

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.audit import SearchPlan, audit_stability
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import Gaussian, kernel_stage
from dp2erm_cvx.program.kernels import FactoredKernelModel, KernelModel, Linear, RandomFourier
from dp2erm_cvx.solve import certify, solve
from tests.audit.stability.reference import reference_program

DOMAIN = Domain(math.sqrt(10), 8.0, arm_floor=20)


def records(n, seed=1, domain=DOMAIN):
    data = simulate("linear", n, rng=seed).dataset
    return domain.records(data.X, data.a, data.y)


def both(name, monkeypatch, given, **settings):
    """The instance by features and the same by a Gram matrix."""
    program = reference_program(name, **settings)
    monkeypatch.setattr(kernel_stage, "DENSE", 0)
    by_features = program.instance(given)
    monkeypatch.setattr(kernel_stage, "DENSE", 10**6)
    by_gram = program.instance(given)
    assert type(by_features.model) is FactoredKernelModel
    assert type(by_gram.model) is KernelModel
    return by_features, by_gram


@pytest.mark.parametrize("kernel", [RandomFourier(1.0, 20, 3), Linear()])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mmd", {"ridge": 1.0}),
        ("mmd", {"ridge": 1e-4, "alpha": 0.2}),
        ("mmd", {"ridge": 1e-3, "cap": 1.5, "alpha": 1.0}),
        ("mmd_pooled", {"ridge": 1e-4}),
        ("mmd_pooled", {"ridge": 0.1, "alpha": 0.0}),
    ],
)
def test_features_and_gram_matrix_give_the_same_weights(name, settings, kernel, monkeypatch):
    by_features, by_gram = both(name, monkeypatch, records(200), kernel=kernel, **settings)
    one, other = (solve(end, tolerance=1e-6) for end in (by_features, by_gram))
    apart = np.sum(np.abs(one.value - other.value))
    assert apart <= one.certificate.output_radius + other.certificate.output_radius
    assert one.certificate.relative_radius <= 1e-6
    # the judge of either finds how wrong another point is
    v = by_gram.model.start()
    for instance, exact in ((by_features, other), (by_gram, one)):
        judged = certify(instance, v)
        assert np.sum(np.abs(instance.model.output(v) - exact.value)) <= judged.output_radius + 1e-6
    declared = solve(by_features, solver="clarabel", polish=False, throw=False)
    apart = np.sum(np.abs(one.value - declared.value))
    assert apart <= one.certificate.output_radius + declared.certificate.output_radius


def test_random_features_are_a_kernel_that_approximates_the_gaussian_one():
    X = records(50).covariates
    kernel = RandomFourier(1.5, 4000, 7)
    K = kernel.cross(X, X)
    assert np.max(np.abs(K - Gaussian(1.5).cross(X, X))) < 0.08
    np.testing.assert_allclose(np.diag(K), 1.0, atol=1e-12)
    assert np.linalg.eigvalsh(K)[0] > -1e-10
    assert np.array_equal(K, RandomFourier(1.5, 4000, 7).cross(X, X))
    assert not np.allclose(K, RandomFourier(1.5, 4000, 8).cross(X, X))
    assert kernel.signed
    np.testing.assert_allclose(kernel.features(X) @ kernel.features(X).T, K)


@pytest.mark.parametrize("name", ["mmd", "mmd_pooled"])
def test_no_neighbor_moves_the_weights_beyond_the_signed_bound(name):
    domain = Domain(1.0, 1.0, arm_floor=25)
    program = reference_program(name, ridge=0.3, kernel=RandomFourier(0.3, 4, 5))
    result = audit_stability(program, None, Universe(domain, 100, 2), search=SearchPlan(1000))
    assert not result.violations
    assert result.verdict("sharp").ratio > 0.1
    unsigned = reference_program(name, ridge=0.3, kernel=Gaussian(0.3)).stability(Universe(domain, 100, 2)).V
    assert result.verdict("sharp").claim.bound > unsigned


def test_a_gram_matrix_that_does_not_fit_is_refused_before_it_is_formed(monkeypatch):
    monkeypatch.setattr(kernel_stage, "_memory", lambda: 1e9)
    assert kernel_stage.COPIES * 8 * 4000**2 < 1e9
    given = records(5000)
    for kernel in (Gaussian(), RandomFourier(1.0, 2000)):
        with pytest.raises(DeclarationError, match=r"5,000: a Gram matrix .* 1\.2 GB"):
            reference_program("mmd", kernel=kernel).instance(given)
    model = PrivateTwoStageERM(DOMAIN, Budget(1.0), reference_program("mmd", ridge=10.0))
    with pytest.raises(DeclarationError, match="RandomFourier"):
        model.plan(5000, 10)  # before any record is read
    for n, kernel in ((5000, RandomFourier(1.0, 2000)), (10**6, RandomFourier(1.0, 100))):
        model = PrivateTwoStageERM(DOMAIN, Budget(1.0), reference_program("mmd", kernel=kernel))
        with pytest.raises(DeclarationError, match="a Gram matrix" if n == 5000 else "of 200 features"):
            model.plan(n, 10)
    assert solve(reference_program("mmd", kernel=RandomFourier(1.0, 20)).instance(given)).certified


@pytest.mark.parametrize("kernel", [RandomFourier(0.5, 6), Linear(0.3)])
def test_the_gradient_rounds_by_no_more_than_it_says(kernel, monkeypatch):
    """Beside exact features and sums: many equal signs, so that an error of order n would show."""
    monkeypatch.setattr(kernel_stage, "DENSE", 0)
    n = 3000
    X = np.tile([[0.6, 0.1], [0.59, 0.12]], (n // 2, 1)) + 1e-3 * np.random.default_rng(0).random((n, 2))
    given = Domain(1.0, 1.0).records(X, np.arange(n) % 2, np.zeros(n))
    model = reference_program("mmd", ridge=1e-6, kernel=kernel).instance(given).model
    v = np.full(n, 1.0) + 0.1 * np.random.default_rng(1).random(n)
    G, S = model.G.astype(np.longdouble), v.astype(np.longdouble)
    F = kernel.features(given.covariates).astype(np.longdouble)
    exact = 2 * (G @ (G.T @ S) - 0.5 * (F @ F.sum(axis=0))) + np.longdouble(model.ridge) * S
    error = float(np.linalg.norm((model.gradient(v) - exact).astype(np.float64)))
    assert error <= model.rounding(v)
    # and the bound is not so large as to hide a sum in any order
    assert model.rounding(v) < n * 2.0**-53 * 2 * np.sum(model.sizes) * np.linalg.norm(model.sizes)


def test_parameters_that_are_none():
    for wrong in ({"bandwidth": 0.0}, {"frequencies": 0}, {"frequencies": 1.5}, {"seed": -1}):
        with pytest.raises(DeclarationError):
            RandomFourier(**wrong)
