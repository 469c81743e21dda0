"""The page of a release: what it says, and that names become no markup."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.release.record import FITTED_BEFORE
from dp2erm_cvx.report import page as pages
from dp2erm_cvx.report import release_page
from dp2erm_cvx.report.page import Span, bars, picture
from dp2erm_cvx.report.story import story_of
from tests.every_release import HOSTILE, LONG, RELEASES, release_of
from tests.report.test_report import read

HEADINGS = (
    "What the result counts",
    "The promise to everybody in the data",
    "Who counts, and what is adjusted for",
    "What it rests on",
    "What was declared before the data were read",
    "The guarantee in full",
)


#: Words of proofs, and of the code, that no reader knows.
JARGON = (
    r"(?<![a-z])(nuisances?|scores?|cent(er|re)s?|standing|coded|clips|factors?)(?![a-z])"
    r"(?! of at most)"
)
FOLDED = r"<style>.*?</style>|<details>((?!<details).)*?</details>"


def first_screen(release) -> list[str]:
    """Lines of a summary before its details."""
    return release.summary().split("\n\nDetails\n")[0].splitlines()


@cache
def page_of(name) -> tuple[str, str]:
    """The page of a release of the table, and its text."""
    page = release_page(release_of(name), source=f"{name} {HOSTILE}.json")
    return page, read(page)[1]


@pytest.mark.one_row_in(12)
@pytest.mark.parametrize("kind", RELEASES)
def test_every_kind_tells_the_same_things_and_loads_nothing(kind) -> None:
    release, (page, text) = release_of(kind), page_of(kind)
    assert not read(page)[0]
    assert kind != "rule of all" or page == release_page(release, source=f"{kind} {HOSTILE}.json")
    assert not re.search(r"url\((?!#)|@import|<script|<img|<b>kg", page)
    places = [text.index(heading) for heading in HEADINGS]
    assert places == sorted(places)
    assert f"dp2erm verify {kind} {HOSTILE}.json" in text
    assert f"epsilon = {release.guarantee.epsilon:g}" in text
    assert ("do not publish" in text) == (kind == "seeded")
    shown, story = " ".join(release.summary(10_000).split()), story_of(release)
    said = (
        story.headline,
        story.precision,
        story.doubt,
        *story.use,
        *story.details,
        *story.population,
        *story.caveats,
    )
    said += story.robust
    outside = read(re.sub(FOLDED, "", page, flags=re.DOTALL))[1]
    limit = 500 if kind.startswith("many") else 410 if kind.startswith("groups") else 385
    assert len(outside.split()) <= limit
    assert not re.search(JARGON, text.replace(kind, ""), re.I)
    for sentence in (" ".join(block.split()) for block in said if isinstance(block, str)):
        assert (sentence in shown, sentence in text) == (True, True), sentence
    numbers = {f"{row['value']:+.4g}" for row in story.rows if row["value"] is not None}
    assert numbers <= {*text.split()} & {*shown.split()}
    if kind.startswith("many"):
        assert HOSTILE in text
        assert LONG in text
    if kind in ("many rule", "many decisions"):
        assert "<img src=x onerror=alert(1)>" in text
    # a record is one person where no unit is declared
    told, first = "One record is taken to be one person.", " ".join(first_screen(release))
    assert (told in first) == (told in text) == (kind != "persons")
    assert "NOT counted" in text
    assert ("relative to the public midpoint 0.5" in text) == (kind == "means")


def test_answers_of_a_study_are_one_page_without_words_of_proofs() -> None:
    asked = {
        name: release_of(name) for name in ("groups", "average effect", "trial", "rule and value")
    }
    page = release_page(asked)
    loaded, text = read(page)
    assert not loaded
    assert not re.search(JARGON, text, re.I)
    outside = read(re.sub(FOLDED, "", page, flags=re.DOTALL))[1]
    assert len(outside.split()) <= 350
    for name, release in asked.items():
        assert f"{name}: {story_of(release).headline}" in outside
    assert (
        "a promise of its own: number or kind of their records differ" in outside
    )  # 900 records, and 400
    same = {name: asked[name] for name in ("average effect", "trial", "rule and value")}
    promise = read(release_page(same))[1]
    # e^3
    assert (
        "changes the probability of any result by a factor of at most 20.1 (epsilon = 3)" in promise
    )
    effect, assumed = same["trial"], "step scale of a Pipeline " + FITTED_BEFORE
    weak = replace(effect, guarantee=replace(effect.guarantee, standing=Standing.CONDITIONAL))
    learned = replace(effect.guarantee, standing=Standing.FITTED_BEFORE, assumptions=(assumed,))
    floor = replace(effect, guarantee=learned, domain={**effect.domain, "arm_floor": 20})
    for one in (weak, floor):  # the weaker standing is that of all
        promise = read(release_page(same | {"again": one}))[1]
        assert "(epsilon = 4)" in promise
        assert "CONDITIONAL: what follows holds" in promise
    assert "at least 20 records in each arm" in promise
    assert "groups: M" in outside
    seeded = release_page({name: release_of(name) for name in ("seeded", "decisions")})
    assert "seeded: NOT PRIVATE" in seeded


def test_a_joint_promise_names_what_every_pipeline_learned_before() -> None:
    effect = release_of("trial")
    releases = {}
    for step in ("scale", "select"):
        guarantee = replace(
            effect.guarantee,
            standing=Standing.FITTED_BEFORE,
            assumptions=(f"step {step} of a Pipeline {FITTED_BEFORE}",),
        )
        releases[step] = replace(effect, guarantee=guarantee)
    before, _ = read(release_page(releases))[1].split("(epsilon = 2)", 1)
    joint = before[before.rindex("CONDITIONAL") :]
    for step in ("scale", "select"):
        assert f"step {step} of a Pipeline {FITTED_BEFORE}" in joint


def test_what_is_not_counted_is_said_so() -> None:
    for kind, words in (
        ("means", "sampling NOT counted"),
        ("decisions", "sampling NOT counted"),
        ("average effect", "sampling counted: alone, ±"),
        ("rule of all", "sampling counted in what the rule gains, NOT in the rule itself"),
        ("rule of all", r"the rule gains [-+.\d]+ units of the outcome over treating nobody"),
        ("unbounded", "95 % interval: unbounded"),
        ("ranges", "clipped in what rests on it, and NOT counted there"),
        ("on released ranges", r"released ranges that it rests on included, .* \(epsilon = 9.5\)"),
    ):
        assert re.search(words, page_of(kind)[1]), kind
    assert "effect_center" not in page_of("average effect")[1]  # which may be a released one


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("kind", [kind for kind in RELEASES if not kind.startswith("many")])
def test_the_first_screen_has_the_result_its_population_what_would_make_it_wrong_and_its_cost(
    kind,
) -> None:
    release, story = release_of(kind), story_of(release_of(kind))
    lines = first_screen(release)
    text = " ".join(lines)
    assert len(lines) <= 15
    for part in (story.headline, story.population[0], story.doubt, story.guarantee[0][1]):
        assert " ".join(part.split()) in text
    assert len(re.findall("Warning: ", text)) == min(len(story.alerts), 4)


def test_a_bias_names_the_model_under_which_it_is_all() -> None:
    for kind, model in (
        ("average effect", "if the outcome is linear in u and v"),
        ("among the treated", "if the outcome of the untreated is linear in u and v"),
        ("risks", "if the probability of the outcome is nearly linear in u and v"),
        ("groups", "if the outcome is linear in age, severity and 2 others"),
    ):
        sentence = story_of(release_of(kind)).precision
        assert re.search(rf"a bias of at most [-.e\d]+, {model}\.", sentence), kind
    assert "bias" not in story_of(release_of("trial")).precision


def test_parts_of_a_half_width_are_not_said_to_add_up() -> None:
    assert (
        "is not the sum of its parts: privacy noise alone"
        in story_of(release_of("trial")).precision
    )


def test_a_rule_that_treats_everybody_or_nobody_says_so() -> None:
    rule = release_of("rule of all")
    for size, start, other in (
        (9.0, "Treat everybody: ", "nobody"),
        (-9.0, "Treat nobody: ", "everybody"),
    ):
        headline = story_of(replace(rule, theta=(size, 0.0, 0.0))).headline
        assert headline.startswith(start)
        assert f"over treating {other}" in headline
        assert headline.count("units of the outcome over") == 1
    assert story_of(replace(rule, theta=(0.0, 9.0, 0.0))).headline.startswith("Treat where ")


def test_an_epsilon_is_read_with_six_digits_rounded_up() -> None:
    effect = release_of("average effect")
    for epsilon, shown in ((2.99999986, "3"), (0.1 + 0.2, "0.3"), (1.0000004, "1.00001")):
        text = replace(effect, guarantee=replace(effect.guarantee, epsilon=epsilon)).summary()
        assert f"(epsilon = {shown})" in text


def test_no_line_crosses_a_name_and_result_warning_and_promise_look_different() -> None:
    page = release_page(replace(release_of("average effect"), narrow=("u",)))
    for label in re.findall(r'<text class="label"[^>]* y="(\d+)"', page):
        for top, bottom in re.findall(r'<line class="zero"[^>]* y1="(\d+)" y2="(\d+)"', page):
            assert not int(top) < int(label) < int(bottom) + 12
    assert {"result", "warning", "promise"} <= set(re.findall(r'<p class="(\w+)"', page))


def test_pages_begin_with_the_standing() -> None:
    effect = release_of("average effect")
    for standing, words in (
        (Standing.NOT_PRIVATE, "NONE. The noise came from a seed"),
        (Standing.UNPROVEN, "NONE that is proven"),
        (
            Standing.CONDITIONAL,
            "CONDITIONAL: what follows holds if this release is the exact solution",
        ),
    ):
        guarantee = replace(effect.guarantee, standing=standing)
        _, text = read(release_page(replace(effect, guarantee=guarantee)))
        assert words in text
        assert text.index("do not publish") < text.index("Effect of treatment")
        assert ("by a factor of at most" in text) == (standing is Standing.CONDITIONAL)
    guarantee = replace(effect.guarantee, epsilon=1.0000004)
    assert "epsilon = 1.00001)" in read(release_page(replace(effect, guarantee=guarantee)))[1]


@pytest.mark.parametrize(
    ("at", "low", "high"),
    [(1.0, 0.5, 2.0), (-3e-7, -4e-7, 1e-9), (5.0, None, 9.0), (0.0, None, 3.0)],
)
def test_places_are_in_order_and_hold_zero(at, low, high) -> None:
    part = Span("part", at, at - 0.1 * abs(at), at + 0.1 * abs(at))
    result = picture([Span("all", at, low, high), part], "")
    assert result is not None
    assert 0 < result["zero"] < 100
    for span, left, dot, right in result["drawn"]:
        assert 0 <= left <= dot <= right <= 100
        assert (left == 0) == (span.low is None)
    assert 2 <= len(result["ticks"]) <= 8
    labels = [float(label) for _, label in result["ticks"]]
    # the axis is linear
    fit = np.polyfit([place for place, _ in result["ticks"]], labels, 1)
    np.testing.assert_allclose(
        np.polyval(fit, result["zero"]), 0.0, atol=1e-3 * (labels[-1] - labels[0])
    )


def test_no_number_breaks_a_picture() -> None:
    assert picture([], "") is None
    assert picture([Span("all", 1e308, -1e308, 1e308)], "") is None
    assert picture([Span("all", 0.0, None, None)], "") is None
    assert bars([{"value": 0.0}, {"value": None}]) == [(50.0,) * 4] * 2
    assert bars([{"value": 1e308}, {"value": 1.0, "noise_half_width": 1e308}])[0] == (50.0,) * 4
    drawn = bars(
        [{"value": 2.0, "noise_half_width": 1.0}, {"value": -1.0, "noise_half_width": None}]
    )
    assert drawn == [(50.0, 82.0, 66.0, 98.0), (34.0, 50.0, 34.0, 34.0)]


def test_a_page_says_what_is_not_installed(monkeypatch) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    with pytest.raises(
        DeclarationError, match=r"needs jinja2: pip install 'dp2erm-cvx\[reports\]'$"
    ):
        release_page(release_of("average effect"))
