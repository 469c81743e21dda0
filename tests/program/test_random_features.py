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


def records(n):
    data = simulate("linear", n, rng=1).dataset
    return DOMAIN.records(data.X, data.a, data.y)


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
    ends, given = [], records(200)
    for dense, model in ((0, FactoredKernelModel), (10**6, KernelModel)):
        monkeypatch.setattr(kernel_stage, "DENSE", dense)
        ends.append(reference_program(name, kernel=kernel, **settings).instance(given))
        assert type(ends[-1].model) is model
    one, other = (solve(end, tolerance=1e-6) for end in ends)
    declared = solve(ends[0], solver="clarabel", polish=False, throw=False)
    for another in (other, declared):
        apart = np.sum(np.abs(one.value - another.value))
        assert apart <= one.certificate.output_radius + another.certificate.output_radius
    assert one.certificate.relative_radius <= 1e-6
    # the judge of either finds how wrong another point is
    v = ends[1].model.start()
    for instance, exact in zip(ends, (other, one), strict=True):
        judged = certify(instance, v)
        assert np.sum(np.abs(instance.model.output(v) - exact.value)) <= judged.output_radius + 1e-6


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
    given, many, too_many = records(5000), RandomFourier(1.0, 2000), RandomFourier(1.0, 100)
    for kernel in (Gaussian(), many):
        with pytest.raises(DeclarationError, match=r"5,000: a Gram matrix .* 1\.2 GB"):
            reference_program("mmd", kernel=kernel).instance(given)
    # before any record is read
    for n, kernel, told in (
        (5000, Gaussian(), "RandomFourier"),
        (5000, many, "a Gram matrix"),
        (10**6, too_many, "of 200 features"),
    ):
        model = PrivateTwoStageERM(DOMAIN, Budget(1.0), reference_program("mmd", kernel=kernel, ridge=10.0))
        with pytest.raises(DeclarationError, match=told):
            model.plan(n, 10)
    assert solve(reference_program("mmd", kernel=RandomFourier(1.0, 20)).instance(given)).certified


def test_parameters_that_are_none():
    for wrong in ({"bandwidth": 0.0}, {"frequencies": 0}, {"frequencies": 1.5}, {"seed": -1}):
        with pytest.raises(DeclarationError):
            RandomFourier(**wrong)
