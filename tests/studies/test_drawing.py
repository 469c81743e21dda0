"""Figures of experiments: what a reader has to see is inside the figure."""

from itertools import product

import pytest

from dp2erm_cvx.plotting.rules import study
from dp2erm_cvx.plotting.studies import confounded, nhefs, rates

pd = pytest.importorskip("pandas")
agg = pytest.importorskip("matplotlib.backends.backend_agg")


def drawn(figure):
    canvas = agg.FigureCanvasAgg(figure)
    canvas.draw()
    return canvas.get_renderer()


def legend_names(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def assert_inside(figure):
    """All letters are within the paper."""
    renderer = drawn(figure)
    width, height = figure.canvas.get_width_height()
    texts = [text for legend in figure.legends for text in legend.get_texts()]
    for ax in filter(lambda ax: ax.get_visible(), figure.axes):
        texts += [ax.title, ax._left_title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
    for text in texts:
        if text.get_text().strip():
            box = text.get_window_extent(renderer)
            assert box.x0 >= 0, text.get_text()
            assert box.y0 >= 0, text.get_text()
            assert box.x1 <= width + 1, text.get_text()
            assert box.y1 <= height + 1, text.get_text()


def confounded_table(epsilons, names):
    rows = []
    for n, replicate, epsilon, name in product((400, 2000), range(2), epsilons, names):
        for family in ("sharp", "composition-sharp") if name.startswith("IPW") else ("sharp",):
            rows.append(
                {"n": n, "replicate": replicate, "center": "at 3", "scheme": name, "family": family}
                | {"noise": "gamma", "epsilon": epsilon, "status": "done", "V": 2.0}
                | {"accuracy": 0.6 + 0.01 * replicate, "effective_share": 1.0}
            )
    return pd.DataFrame(rows)


@pytest.mark.parametrize("epsilons", [[1.0], [0.5, 1.0, 2.0, 5.0]])
def test_a_legend_is_whole_however_many_budgets_there_are(epsilons):
    names = ["w = 1", "IPW, ridge 0.003, trim 6", "IPW, ridge 0.1, trim 4", "EBW, ridge 0.1", "MMD"]
    ((_, figure),) = confounded(confounded_table(epsilons, names))
    assert len(legend_names(figure)) == 7
    assert_inside(figure)


def test_short_logarithmic_axes_have_numbers():
    rows = []
    for curvature, n, replicate in product(("strongly convex", "not strongly convex"), (200, 3200), range(3)):
        rows.append(
            {"curvature": curvature, "n": n, "replicate": replicate, "scheme": "w = 1", "family": "sharp"}
            | {"noise": "gamma", "status": "done", "excess": 1.0 / n}
            | {"error": 3.0 + 0.5 * replicate + 200 / n}
        )
    ((stem, figure),) = rates(pd.DataFrame(rows))
    assert stem == "rates-gamma"
    assert_inside(figure)
    for ax in figure.axes:
        low, high = ax.get_ylim()
        told = [label.get_text() for label in ax.get_yticklabels() if low <= label.get_position()[1] <= high]
        assert sum(bool(text) for text in told) >= 2
        assert ax.collections  # the intervals
        assert ax.get_legend() is None  # a legend within would cover curves


def nhefs_table():
    rows = []
    for scheme in ("uniform", "IPW, ridge/10", "private IPW"):
        for epsilon, (noise, statistic) in product(
            (0.1, 1.0), (("gamma", "arm_means"), ("laplace", "plug_in_ate"))
        ):
            reach = 1.0 if epsilon == 1.0 else 30.0
            rows.append((scheme, noise, statistic, epsilon, 2.0, 2.0 - reach, 2.0 + reach))
        if scheme != "private IPW":
            rows.append((scheme, "none", "no privacy, same bounds", None, 2.8, 2.8, 2.8))
        rows.append((scheme, "none", "textbook, no bounds", None, 3.4, 3.4, 3.4))
        rows.append((scheme, "none", "difference of means", None, 2.5, 2.5, 2.5))
    names = ["scheme", "noise", "statistic", "epsilon", "median", "low", "high"]
    return pd.DataFrame(rows, columns=names).assign(status="done")


def test_nhefs_marks_what_goes_on_and_has_every_line_in_every_panel():
    ((_, figure),) = nhefs(nhefs_table())
    assert_inside(figure)
    assert not any("_" in name for name in legend_names(figure))
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert len(shown) == 3
    for ax in shown:
        markers = [line.get_marker() for line in ax.lines]
        assert markers.count("v") == 2  # one for each noise
        assert markers.count("^") == 2
        styles = [line.get_linestyle() for line in ax.lines if len(set(line.get_ydata())) == 1]
        assert {"-", "--", ":"} <= set(styles)


def study_table(treated):
    rows = []
    for replicate, scheme, epsilon in product(range(3), ("w = 1", "MMD"), (0.1, 1.0, 10.0)):
        head = {"scenario": "tree", "replicate": replicate, "scheme": scheme, "status": "done"}
        for family, noise in product(("paper", "sharp", "auto"), ("gamma", "gaussian")):
            share = 0.9 if family == "paper" else 1.0
            rows.append(
                {**head, "family": family, "noise": noise, "epsilon": epsilon, "effective_share": share}
                | {"accuracy": 0.50 + 0.003 * epsilon, "value": 4.0 + 0.01 * epsilon}
            )
        rows.append(
            {**head, "family": "non-private", "noise": "none", "epsilon": float("inf")}
            | {"accuracy": 0.6, "value": 4.2, "effective_share": 0.8}
        )
    for scheme, accuracy in (("treat all", treated), ("treat none", 1 - treated)):
        rows.append(
            {"scenario": "tree", "replicate": 0, "scheme": scheme, "status": "done"}
            | {"family": "constant rule", "noise": "none", "epsilon": float("inf")}
            | {"accuracy": accuracy, "value": 4.0 + accuracy, "effective_share": float("nan")}
        )
    return pd.DataFrame(rows)


def test_panels_tell_effective_sample_sizes_and_hold_every_line():
    figures = dict(study(study_table(0.39), part="scenario", stem="simulation"))
    assert list(figures) == ["simulation-tree", "simulation-tree-value"]
    figure = figures["simulation-tree"]
    assert {"treat all", "treat none"} <= set(legend_names(figure))
    assert_inside(figure)
    for ax in figure.axes:
        (told,) = (text.get_text().replace("\n", " ") for text in ax.texts)
        assert told == "effective sample size / n: 1.000 sharp, auto; 0.900 paper; 0.800 without privacy"
        low, high = ax.get_ylim()
        heights = [height for line in ax.lines for height in line.get_ydata()]
        assert low < min(heights) <= 0.39
        assert 0.61 <= max(heights) < high
        assert high - low < 0.25


def test_constant_rules_that_are_the_same_are_one_line():
    figures = dict(study(study_table(0.5), part="scenario", stem="simulation"))
    names = legend_names(figures["simulation-tree"])
    assert "treat all or none" in names
    assert "treat all" not in names
