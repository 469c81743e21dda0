"""NHEFS over budgets: medians near the effect without noise, ranges that shrink, and what is published."""

import pytest
from nhefs import CLIPPED, FULL, QUICK, rows, summary

from dp2erm_cvx.demo import settings
from tests.experiments.tables import table_of


def test_released_effects_close_in_on_the_effect_without_noise():
    labels = [scheme.label for scheme in (*settings.schemes(), settings.composed_scheme())]
    table = table_of(rows, FULL | QUICK | {"draws": 60}, [{"scheme": label} for label in labels])
    assert (table["status"] == "done").all()
    textbook = table[table["statistic"] == "textbook, no bounds"]["median"]
    assert textbook.unique() == pytest.approx([3.36], abs=0.01)
    private = table[table["epsilon"].notna()]
    places = [private[name] for name in ("scheme", "noise", "epsilon")]
    spread = (private["high"] - private["low"]).groupby(places).mean().unstack("epsilon")
    assert (spread[5.0] < 0.5 * spread[1.0]).mean() > 0.8
    exact = table[table["statistic"] == CLIPPED].set_index("scheme")["median"]
    means = private[(private["noise"] == "gamma") & (private["epsilon"] == 5.0)].set_index("scheme")["median"]
    for scheme in ("uniform", "entropy", "IPW"):
        assert means[scheme] == pytest.approx(exact[scheme], abs=0.25)
    weighted = table[~table["statistic"].isin(["textbook, no bounds", "difference of means"])]
    assert weighted["effective_share"].between(0.2, 1.0 + 1e-9).all()
    assert len(summary(table)) == 18
