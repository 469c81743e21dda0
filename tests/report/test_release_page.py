"""The page of a release: what it says, that nothing in a file becomes markup, and how it fits screens."""

import re
from dataclasses import replace

import numpy as np
import pytest

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.release import Standing
from dp2erm_cvx.release.story import story_of
from dp2erm_cvx.report import page as pages
from dp2erm_cvx.report import release_page
from dp2erm_cvx.report.page import Span, bars, picture
from tests.report.conftest import HOSTILE, LONG
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
JARGON = r"(?<![a-z])(nuisances?|scores?|cent(er|re)s?|standing|coded|clips|factors?)(?![a-z])(?! of at most)"
FOLDED = r"<style>.*?</style>|<details>((?!<details).)*?</details>"
KINDS = ("effect", "att", "risks", "ranges", "rule", "means", "itr", "huber", "many effect", "many rule")
KINDS = (*KINDS, "many itr", "overlap", "groups", "persons", "survey")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_tells_the_same_things_and_loads_nothing(releases, kind) -> None:
    release = releases[kind]
    page = release_page(release, source=f"{kind} {HOSTILE}.json")
    loaded, text = read(page)
    assert not loaded
    assert not re.search(r"url\((?!#)|@import|<script|<img|<b>kg", page)
    places = [text.index(heading) for heading in HEADINGS]
    assert places == sorted(places)
    assert page == release_page(release, source=f"{kind} {HOSTILE}.json")
    assert f"dp2erm verify {kind} {HOSTILE}.json" in text
    assert f"epsilon = {release.guarantee.epsilon:g}" in text
    assert ("do not publish" in text) == (kind == "huber")
    shown, story = " ".join(release.summary(10_000).split()), story_of(release)
    said = (story.headline, story.precision, *story.use, *story.details, *story.population, *story.caveats)
    said += story.robust
    outside = read(re.sub(FOLDED, "", page, flags=re.DOTALL))[1]
    assert len(outside.split()) <= (450 if kind.startswith("many") else 350)
    assert not re.search(JARGON, text, re.I)
    for sentence in (" ".join(block.split()) for block in said if isinstance(block, str)):
        assert (sentence in shown, sentence in text) == (True, True), sentence
    numbers = {f"{row['value']:+.4g}" for row in story.rows if row["value"] is not None}
    assert numbers <= {*text.split()} & {*shown.split()}
    if kind.startswith("many"):
        assert HOSTILE in text
        assert LONG in text
    if kind in ("many rule", "many itr"):
        assert "<img src=x onerror=alert(1)>" in text


def test_answers_of_a_study_are_one_page_without_words_of_proofs(releases) -> None:
    asked = {name: releases[name] for name in ("groups", "effect", "risks", "rule")}
    page = release_page(asked)
    loaded, text = read(page)
    assert not loaded
    assert not re.search(JARGON, text, re.I)
    outside = read(re.sub(FOLDED, "", page, flags=re.DOTALL))[1]
    assert len(outside.split()) <= 350
    for name, release in asked.items():
        assert f"{name}: {story_of(release).headline}" in outside
    assert "they are not about the same data" in outside  # 900 records, and 300
    same = {name: releases[name] for name in ("effect", "risks", "rule")}
    promise = read(release_page(same))[1]
    assert "changes by a factor of at most 404 (epsilon = 6)" in promise  # e^2, e^2 and e^2
    assert "groups: M" in outside
    seeded = release_page({"huber": releases["huber"], "itr": releases["itr"]})
    assert "huber: NOT PRIVATE" in seeded


def test_a_record_is_one_person_where_no_unit_is_declared(releases) -> None:
    for kind in KINDS:
        told, shown = "One record is taken to be one person.", releases[kind].summary().splitlines()
        first = " ".join(shown[:6])
        assert (told in first) == (told in read(release_page(releases[kind]))[1]) == (kind != "persons"), kind


def test_what_is_not_counted_is_said_so(releases) -> None:
    texts = {kind: read(release_page(releases[kind]))[1] for kind in KINDS}
    for kind in ("means", "itr"):
        assert "sampling NOT counted" in texts[kind]
    assert "sampling counted: alone, ±" in texts["effect"]
    assert "sampling counted in what the rule gains, NOT in the rule itself" in texts["rule"]
    assert re.search(r"it gains [-+.\d]+ units of the outcome over treating nobody", texts["rule"])
    assert all("NOT counted" in text for text in texts.values())
    assert "95 % interval: unbounded" in texts["att"]
    assert "Ranges were released for epsilon" in texts["ranges"]
    assert "relative to the public midpoint 0.5" in texts["means"]
    assert "relative to" not in texts["itr"]
    assert "effect_center" not in texts["effect"]  # which may be a released one


def test_the_standing_leads(releases) -> None:
    effect = releases["effect"]
    for standing, words in (
        (Standing.NOT_PRIVATE, "NONE. The noise came from a seed"),
        (Standing.UNPROVEN, "NONE that is proven"),
        (Standing.CONDITIONAL, "CONDITIONAL: what follows holds for the exact solution"),
    ):
        guarantee = replace(effect.guarantee, standing=standing)
        _, text = read(release_page(replace(effect, guarantee=guarantee)))
        assert words in text
        assert text.index("do not publish") < text.index("Effect of treatment")
        assert ("by a factor of at most" in text) == (standing is Standing.CONDITIONAL)
    assert "Not checked" not in text
    weights = releases["itr"]
    other = {**weights.declared, "second": {"name": "elsewhere", "settings": {}}}
    assert "Not checked" in read(release_page(replace(weights, declared=other)))[1]
    guarantee = replace(effect.guarantee, epsilon=1.0000004)
    assert "epsilon = 1.0000004" in read(release_page(replace(effect, guarantee=guarantee)))[1]


@pytest.mark.parametrize(
    ("at", "low", "high"), [(1.0, 0.5, 2.0), (-3e-7, -4e-7, 1e-9), (5.0, None, 9.0), (0.0, None, 3.0)]
)
def test_places_are_in_order_and_hold_zero(at, low, high) -> None:
    found = picture([Span("all", at, low, high), Span.around("part", at, 0.1 * abs(at))], "")
    assert found is not None
    assert 0 < found["zero"] < 100
    for span, left, dot, right in found["drawn"]:
        assert 0 <= left <= dot <= right <= 100
        assert (left == 0) == (span.low is None)
    assert 2 <= len(found["ticks"]) <= 8
    labels = [float(label) for _, label in found["ticks"]]
    # the axis is linear
    fit = np.polyfit([place for place, _ in found["ticks"]], labels, 1)
    np.testing.assert_allclose(np.polyval(fit, found["zero"]), 0.0, atol=1e-3 * (labels[-1] - labels[0]))


def test_no_number_breaks_a_picture() -> None:
    assert picture([], "") is None
    assert picture([Span("all", 1e308, -1e308, 1e308)], "") is None
    assert picture([Span("all", 0.0, None, None)], "") is None
    assert bars([{"value": 0.0}, {"value": None}]) == [(50.0,) * 4] * 2
    assert bars([{"value": 1e308}, {"value": 1.0, "noise_half_width": 1e308}])[0] == (50.0,) * 4
    drawn = bars([{"value": 2.0, "noise_half_width": 1.0}, {"value": -1.0, "noise_half_width": None}])
    assert drawn == [(50.0, 82.0, 66.0, 98.0), (34.0, 50.0, 34.0, 34.0)]


def test_a_page_says_what_is_not_installed(releases, monkeypatch) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda name: None)
    with pytest.raises(DeclarationError, match=r"needs jinja2: pip install 'dp2erm-cvx\[reports\]'$"):
        release_page(releases["effect"])
