"""Bugs planted into the noise of complete releases, wherever the package uses its two ways to
draw.
"""

import sys

import dp2erm_cvx.noise


def plant(monkeypatch, bug):
    """Replace ``draw`` and ``draw_within`` by ``bug(original)`` in every module that holds them."""
    for name in ("draw", "draw_within"):
        original = getattr(dp2erm_cvx.noise, name)
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
