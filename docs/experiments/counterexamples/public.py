"""Public implementations as mechanisms of one dataset (X, a, y), for ``search_runs``.

``epsilon`` is the budget that the package is asked for. Every function releases what a user of the
package reads: an effect, or coefficients. Outcomes are in [-1, 1]; covariates are in the unit ball,
except where the package asks for a box, which is [0, 1]^k.
"""

import warnings

import numpy as np

warnings.filterwarnings("ignore")


# dpate 0.0.1


def dpate_propensity(dataset, epsilon=1.0):
    """The private propensity model: its coefficients and its intercept."""
    from dpate import PrivPropScoreModel

    X, a, _ = dataset
    model = PrivPropScoreModel(epsilon, clip=0.1)
    model.fit(X, a)
    return [model.coef_, model.intercept_]


def dpate_ipw(dataset, epsilon=1.0):
    """Inverse propensity weights, both steps on all records."""
    from dpate import dp_ipw_sequential

    return dp_ipw_sequential(*dataset, 1.0, epsilon)


def dpate_split(dataset, epsilon=1.0):
    """Inverse propensity weights, the propensity from one half of the records."""
    from dpate import dp_ipw_split

    return dp_ipw_split(*dataset, 1.0, epsilon)


def dpate_hajek(dataset, epsilon=1.0):
    """Normalized inverse propensity weights."""
    from dpate import dp_nipw_sequential

    return dp_nipw_sequential(*dataset, 1.0, epsilon)


def dpate_blocking(dataset, epsilon=1.0):
    """Blocks of the private propensity; the method of the package's own paper."""
    from dpate import dp_prop_blocking

    return dp_prop_blocking(*dataset, 1.0, epsilon)


def dpate_aggregation(dataset, epsilon=1.0):
    """The mean of estimates of disjoint parts, noise at the end."""
    from dpate import dp_ate_by_aggregation

    return dp_ate_by_aggregation(*dataset, 1.0, epsilon)


def dpate_nuisance_ipw(dataset, epsilon=1.0):
    """Propensities averaged over the other parts."""
    from dpate import dp_nuisance_aggregation

    return dp_nuisance_aggregation(*dataset, 1.0, epsilon, estimator="IPW")


def dpate_nuisance_aipw(dataset, epsilon=1.0):
    """Propensities and regressions averaged over the other parts."""
    from dpate import dp_nuisance_aggregation

    return dp_nuisance_aggregation(*dataset, 1.0, epsilon, estimator="AIPW")


def dpate_nuisance_regression(dataset, epsilon=1.0):
    """Regressions averaged over the other parts."""
    from dpate import dp_nuisance_aggregation

    return dp_nuisance_aggregation(*dataset, 1.0, epsilon, estimator="Reg")


# diffprivlib 0.6.6


def diffprivlib_linear(dataset, epsilon=1.0):
    """Least squares of the outcome on the treatment and the covariates, in [0, 1]."""
    from diffprivlib.models import LinearRegression

    X, a, y = dataset
    model = LinearRegression(epsilon=epsilon, bounds_X=(0.0, 1.0), bounds_y=(-1.0, 1.0))
    model.fit(np.column_stack([a, X]), y)
    return [model.coef_, model.intercept_]


def diffprivlib_slope(dataset, epsilon=1.0):
    """Least squares of the outcome on the treatment alone, in [0, 1]: the naive difference."""
    from diffprivlib.models import LinearRegression

    _, a, y = dataset
    model = LinearRegression(epsilon=epsilon, bounds_X=(0.0, 1.0), bounds_y=(-1.0, 1.0))
    return model.fit(a[:, None].astype(float), y).coef_


def diffprivlib_slope_symmetric(dataset, epsilon=1.0):
    """Slope with the treatment as -1 and 1, whose bounds are as far from 0 on both sides."""
    from diffprivlib.models import LinearRegression

    _, a, y = dataset
    model = LinearRegression(epsilon=epsilon, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0))
    return model.fit(2.0 * a[:, None] - 1.0, y).coef_


def diffprivlib_linear_symmetric(dataset, epsilon=1.0):
    """Linear regression with bounds [-1, 1] of the covariates and the treatment."""
    from diffprivlib.models import LinearRegression

    X, a, y = dataset
    model = LinearRegression(
        epsilon=epsilon, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), fit_intercept=False
    )
    model.fit(np.column_stack([2.0 * a - 1.0, X]), y)
    return model.coef_


def diffprivlib_propensity(dataset, epsilon=1.0):
    """Logistic regression of the treatment on covariates in the unit ball."""
    from diffprivlib.models import LogisticRegression

    X, a, _ = dataset
    model = LogisticRegression(epsilon=epsilon, data_norm=1.0).fit(X, a)
    return [model.coef_, model.intercept_]


def diffprivlib_scaler(dataset, epsilon=1.0):
    """Means and variances that covariates are standardized by."""
    from diffprivlib.models import StandardScaler

    X, _, _ = dataset
    model = StandardScaler(epsilon=epsilon, bounds=(-1.0, 1.0)).fit(X)
    return [model.mean_, model.var_]


def diffprivlib_bayes(dataset, epsilon=1.0):
    """Gaussian naive Bayes for the treatment: means, variances, shares of the arms."""
    from diffprivlib.models import GaussianNB

    X, a, _ = dataset
    model = GaussianNB(epsilon=epsilon, bounds=(-1.0, 1.0)).fit(X, a)
    return [model.theta_, model.var_, model.class_prior_]


# mechanisms whose answer is known: the search must leave the first alone and find the second


def noisy_difference(dataset, rng, epsilon=1.0):
    """The naive difference by clipped sums and counts at epsilon / 2 each, with Laplace noise."""
    _, a, y = dataset
    y, scale = np.clip(y, -1.0, 1.0), 4.0 / epsilon
    sums = [np.sum(y[a == arm]) + rng.laplace(scale=scale) for arm in (1, 0)]
    counts = [np.sum(a == arm) + rng.laplace(scale=scale) for arm in (1, 0)]
    return [*sums, *counts]


def noisy_sum(dataset, rng, epsilon=1.0):
    """The sum of the treated outcomes, of sensitivity 2 where a record is replaced."""
    _, a, y = dataset
    return np.sum(np.clip(y[a == 1], -1.0, 1.0)) + rng.laplace(scale=2.0 / epsilon)


def gaussian_sum(dataset, rng, mu=1.0):
    """The sum with Gaussian noise: mu-GDP."""
    _, a, y = dataset
    return np.sum(np.clip(y[a == 1], -1.0, 1.0)) + 2.0 / mu * rng.standard_normal()


def jump(dataset, rng, epsilon=1.0):
    """An answer that moves by 5 where two thirds of the records are treated.

    Its Laplace noise has scale 1 / epsilon.
    """
    _, a, _ = dataset
    return 5.0 * (a.mean() > 2 / 3) + rng.laplace(scale=1.0 / epsilon)
