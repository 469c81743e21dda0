"""NHEFS over budgets: medians near the effect without noise, ranges that shrink, and what is published."""

import pytest

from dp2erm_cvx.studies import design_path
from dp2erm_cvx.studies.engine import load_design, run
from dp2erm_cvx.studies.nhefs import NhefsBudgets, NhefsDesign


def test_released_effects_close_in_on_the_effect_without_noise(tmp_path):
    design = load_design(NhefsDesign, design_path("nhefs"), "quick", draws=60)
    table = run(NhefsBudgets(), design, tmp_path)
    assert (table["status"] == "done").all()
    assert len(table["scheme"].unique()) == 6
    published = table[table["statistic"] == "textbook, no bounds"]["median"]
    assert published.unique() == pytest.approx([3.36], abs=0.01)
    private = table[table["epsilon"].notna()]
    width = (private["high"] - private["low"]).groupby(
        [private["scheme"], private["noise"], private["epsilon"]]
    )
    spread = width.mean().unstack("epsilon")
    assert (spread[5.0] < 0.5 * spread[1.0]).mean() > 0.8
    exact = table[table["statistic"] == "no privacy, same bounds"].set_index("scheme")["median"]
    means = private[(private["noise"] == "gamma") & (private["epsilon"] == 5.0)].set_index("scheme")["median"]
    for scheme in ("uniform", "entropy", "IPW"):
        assert means[scheme] == pytest.approx(exact[scheme], abs=0.25)
    weighted = table[~table["statistic"].isin(["textbook, no bounds", "difference of means"])]
    assert weighted["effective_share"].between(0.2, 1.0 + 1e-9).all()
    headers, lines = NhefsBudgets().summary_table(design, table)
    assert len(lines) == 18
    assert all(len(line) == len(headers) for line in lines)
