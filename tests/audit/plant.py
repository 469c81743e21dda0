"""Bugs planted into the noise of complete releases, wherever the package uses its two ways to draw."""

import random
import sys

import numpy as np

from dp2erm_cvx import mechanism


def plant(monkeypatch, bug):
    """Replace ``draw`` and ``draw_within`` by ``bug(original)`` in every module that holds them."""
    for name in ("draw", "draw_within"):
        original = getattr(mechanism, name)
        for module in list(sys.modules.values()):
            if (
                getattr(module, "__name__", "").startswith("dp2erm_cvx")
                and vars(module).get(name) is original
            ):
                monkeypatch.setattr(module, name, bug(original))


def used_twice(draw):
    """Every second release gets the noise of the one before."""
    kept = []

    def again(*args, **settings):
        if kept:
            return kept.pop()
        kept.append(draw(*args, **settings))
        return kept[-1]

    return again


def one_byte(draw):
    """The generator is seeded by a single byte of the operating system's entropy."""

    def seeded(*args, seed=None, **settings):
        return draw(*args, seed=f"byte {random.SystemRandom().getrandbits(8)}", **settings)

    return seeded


def halved(draw):
    """Half the noise, though the plan says otherwise."""

    def half(*args, **settings):
        result = draw(*args, **settings)
        if isinstance(result, np.ndarray):
            return result / 2
        return type(result)(result.value / 2, result.distance)

    return half


def by_coordinate(draw):
    """Independent Laplace coordinates, which have no radial density, for gamma noise: of one seed."""
    rng = np.random.default_rng(0)

    def wrong(calibration, *args, **settings):
        result = draw(calibration, *args, **settings)
        value = rng.laplace(scale=calibration.scale, size=calibration.n_parameters)
        return value if isinstance(result, np.ndarray) else type(result)(value, result.distance)

    return wrong
