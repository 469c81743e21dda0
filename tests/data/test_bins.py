"""Bins of a range and crosses of two columns: public levels, each record by itself."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, PrivateRule, Treatment
from dp2erm_cvx.data.bins import bin_levels, bin_places, declared_cuts, middle_bin
from dp2erm_cvx.data.blocked import BlockedDataset
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain_file import domain_of, load_domain
from dp2erm_cvx.data.tables import read_frame
from dp2erm_cvx.diagnostics.columns import TableCells, record_counts
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.release.verify import verify

DECLARED = {
    "outcome_column": "y",
    "outcome_bound": 2.0,
    "treatment": {"column": "a", "treated": "1", "control": "0"},
    "ranges": {"age": [18, 90], "dose": [0.0, 1.0]},
    "levels": {"stage": ["I", "II"]},
    "bins": {"age": [30, 50]},
}
CROSSED = DECLARED | {"bins": {"age": [30, 50], "cross": [{"columns": ["age", "stage"]}]}}


def coded(declared, cells):
    """The covariates of a table of cells, by name."""
    domain = domain_of(declared)
    frame = pd.DataFrame(cells)
    n = len(frame)
    data = Dataset.coded(domain, frame, np.arange(n) % 2, np.zeros(n))
    return pd.DataFrame(data.X, columns=list(domain.columns))


CELLS = {
    "age": [-5.0, 29.999, 30.0, 49.0, 50.0, 1e9, None, "old"],
    "stage": ["I", "II", "I", "III", None, "II", "I", "II"],
    "dose": np.linspace(0.0, 1.0, 8),
}


def test_every_number_is_in_one_bin_and_a_cut_belongs_to_the_bin_above():
    ages = coded(DECLARED, CELLS)[["age=below 30", "age=30 to below 50", "age=50 or more"]]
    assert np.argmax(ages, axis=1).tolist() == [0, 0, 1, 1, 2, 2, 1, 1]
    assert np.all(ages.sum(axis=1) == 1)


def test_a_missing_number_is_a_level_where_it_is_declared():
    ages = coded(DECLARED | {"missing": {"age": 18}}, CELLS).filter(regex="^age=")
    assert list(ages)[-1] == "age=missing"
    assert np.argmax(ages, axis=1).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_crossed_columns_have_a_covariate_for_every_pair_of_levels_alone():
    table = coded(CROSSED, CELLS)
    pairs = itertools.product(["below 30", "30 to below 50", "50 or more"], ["I", "II"])
    assert list(table) == ["dose", *(f"age x stage={age}, {stage}" for age, stage in pairs)]
    on = [name.partition("=")[2] for name in table.columns[1:]]
    crossed = [
        [text for text, one in zip(on, row, strict=True) if one] for row in table.to_numpy()[:, 1:]
    ]
    assert crossed == [
        ["below 30, I"],
        ["below 30, II"],
        ["30 to below 50, I"],
        [],  # of no declared stage
        [],
        ["50 or more, II"],
        ["30 to below 50, I"],
        ["30 to below 50, II"],
    ]


def test_other_and_missing_levels_are_crossed_as_well():
    stages = {"levels": {"stage": ["I", "other", ""]}, "missing": {"age": 18}}
    table = coded(CROSSED | stages, CELLS)
    assert len(table.columns) == 1 + 4 * 3
    assert np.all(table.iloc[:, 1:].sum(axis=1) == 1)
    assert table.loc[3, "age x stage=30 to below 50, other"] == 1
    assert table.loc[4, "age x stage=50 or more, missing"] == 1
    assert table.loc[6, "age x stage=missing, I"] == 1


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=6, unique=True).map(sorted),
    st.lists(st.floats(-50, 50), min_size=1, max_size=30),
)
def test_bins_are_those_of_pandas(cuts, numbers):
    cuts = [float(cut) for cut in cuts]
    assert len(bin_levels(cuts)) == len({*bin_levels(cuts)}) == len(cuts) + 1
    ours = bin_places(cuts, np.array(numbers), middle_bin(cuts))
    theirs = pd.cut(numbers, [-math.inf, *cuts, math.inf], right=False, labels=False)
    assert ours.tolist() == theirs.tolist()


def test_near_cuts_have_names_of_their_own():
    near = bin_levels([0.1, 0.1 + 1e-12, 0.1 + 2e-12])
    assert len({*near}) == 4


@given(st.integers(0, 7), st.sampled_from([None, "x", -1e300, 30.0, 50, "49.5"]))
def test_no_cell_changes_another_record(place, cell):
    changed = {**CELLS, "age": [*CELLS["age"][:place], cell, *CELLS["age"][place + 1 :]]}
    before = coded(CROSSED, CELLS).drop(index=place)
    assert before.equals(coded(CROSSED, changed).drop(index=place))


@pytest.mark.parametrize(
    "declared", [DECLARED, CROSSED, CROSSED | {"missing": {"age": 20, "dose": 0.3}}]
)
def test_no_record_is_beyond_the_derived_norm(declared):
    domain = domain_of(declared)
    inside = Domain(1e6, 1.0, ranges=domain.ranges, codebook=domain.codebook)
    ends = coded(declared, {**CELLS, "dose": [0.0, 1.0, None, 1.0] * 2}).to_numpy()
    norms = np.linalg.norm(inside.features(ends), axis=1)
    assert norms.max() == pytest.approx(domain.features_bound)


def test_centers_of_bins_and_crosses_are_shares():
    declared = CROSSED | {"center": {"age x stage": {"below 30, I": 0.4}}}
    assert domain_of(declared).center == {"age x stage=below 30, I": 0.4}
    shares = DECLARED | {"center": {"age": {"50 or more": 0.2}}}
    assert domain_of(shares).center == {"age=50 or more": 0.2}
    with pytest.raises(DeclarationError, match="age is crossed"):
        domain_of(CROSSED | {"center": {"age": {"50 or more": 0.2}}})


def test_a_declaration_survives_json_and_a_file(tmp_path):
    domain = domain_of(CROSSED | {"missing": {"age": 20}})
    assert Domain.from_dict(domain.to_dict()) == domain
    path = tmp_path / "domain.toml"
    path.write_text(
        """
        outcome_column = "y"
        outcome_bound = 2.0
        treatment = { column = "a", treated = "1", control = "0" }
        [ranges]
        age = [18, 90]
        dose = [0.0, 1.0]
        [levels]
        stage = ["I", "II"]
        [missing]
        age = 20
        [bins]
        age = [30, 50]
        [[bins.cross]]
        columns = ["age", "stage"]
        """
    )
    assert load_domain(path) == domain
    assert "age and stage are crossed" in domain.codebook.in_words()


def test_chosen_covariates_keep_their_bins_and_whole_crosses():
    assert domain_of(CROSSED | {"covariates": ["age"]}).columns == tuple(
        f"age={level}" for level in bin_levels([30, 50])
    )
    assert len(domain_of(CROSSED | {"covariates": ["stage", "age"]}).columns) == 6
    assert domain_of(CROSSED | {"covariates": ["dose"]}).columns == ("dose",)


WRONG = {
    "a cut at an end": (
        {"bins": {"age": [18, 50]}},
        "cut 18 is not inside of its range \\(18, 90\\)",
    ),
    "a cut outside": ({"bins": {"age": [30, 95]}}, "cut 95"),
    "one bin": ({"bins": {"age": []}}, "at least one cut"),
    "cuts that fall": ({"bins": {"age": [50, 30]}}, "must increase"),
    "a cut twice": ({"bins": {"age": [30, 30]}}, "must increase"),
    "no number": ({"bins": {"age": [math.nan]}}, "nan"),
    "a text": ({"bins": {"age": "30"}}, "must be a list"),
    "levels": ({"bins": {"stage": [1]}}, "'stage' is declared otherwise as well"),
    "the outcome": ({"bins": {"y": [1]}}, "'y' is declared otherwise as well"),
    "no range": ({"bins": {"height": [1]}}, "'height' has no range"),
    "a logarithm": (
        {"log": ["dose"], "bins": {"dose": [0.5]}, "ranges": {"dose": [0.1, 1]}},
        "log: 'dose'",
    ),
    "too many": (
        {"bins": {"age": list(range(19, 89)), "dose": [0.2, 0.5]}, "cross": [["age", "dose"]]},
        "213 levels: at most 200",
    ),
    "three columns": ({"cross": [["age", "stage", "dose"]]}, "two columns"),
    "one column": ({"cross": [["age", "age"]]}, "crossed with itself"),
    "a column without levels": ({"cross": [["age", "dose"]]}, "'dose' has neither bins nor levels"),
    "an unknown column": ({"cross": [["age", "stages"]]}, "did you mean stage"),
    "a cross twice": ({"cross": [["age", "stage"], ["stage", "age"]]}, "stands there twice"),
    "no tables": (
        {"bins": {"age": [30], "cross": [["age", "stage"]]}},
        r"must be tables \[\[bins.cross\]\]",
    ),
    "another name": (
        {"bins": {"age": [30], "cross": [{"column": []}]}},
        "must have the two columns alone",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_bins_are_refused_in_one_line(name):
    wrong, text = dict(WRONG[name][0]), WRONG[name][1]
    if "cross" in wrong:
        pairs = [{"columns": columns} for columns in wrong.pop("cross")]
        wrong["bins"] = {**wrong.get("bins", {"age": [30, 50]}), "cross": pairs}
    with pytest.raises(DeclarationError, match=text) as refusal:
        domain_of(DECLARED | wrong)
    assert "\n" not in str(refusal.value)


def test_cuts_of_no_number_are_refused():
    for wrong in ([True], ["a"], [math.inf], 3.0, None, {"a": 1}):
        with pytest.raises(DeclarationError):
            declared_cuts("bins[age]", wrong)


def drawn(n, seed=3):
    """Records whose treatment and outcome follow steps of age within stages, and the mean
    effect.
    """
    rng = np.random.default_rng(seed)
    age, stage = rng.uniform(18, 90, n), rng.choice(["I", "II"], n)
    step = np.select([age < 30, age < 50], [1.0, -0.5], 0.4) * np.where(stage == "I", 1.0, -1.0)
    a = rng.random(n) < 0.5 + 0.3 * np.sign(step)
    y = np.clip(0.8 * step + 0.3 * a + 0.2 * rng.standard_normal(n), -2, 2)
    table = pd.DataFrame({"age": np.round(age, 3), "stage": stage, "dose": rng.random(n)})
    return table, a.astype(int), y


@pytest.mark.slow
def test_a_cross_removes_what_a_line_leaves():
    table, a, y = drawn(20_000)
    domains = domain_of({**DECLARED, "bins": {}}), domain_of(CROSSED)
    line, cross = (
        PrivateEffect(domain, Budget(8.0), residual_scale=0.3, seed=1).fit(table, a, y).release_
        for domain in domains
    )
    assert not line.interval.low < 0.3 < line.interval.high
    assert cross.interval.low < 0.3 < cross.interval.high
    assert cross.interval.high - cross.interval.low < 0.1
    assert not verify(cross).refuted


def test_blocks_give_the_release_of_memory(tmp_path):
    pytest.importorskip("pyarrow")
    table, a, y = drawn(700)
    table.loc[::7, "age"] = np.nan
    path = tmp_path / "records.parquet"
    table.assign(a=a, y=y).to_parquet(path)
    blocks = BlockedDataset.read(path, treatment="a", outcome="y")
    domain = domain_of(CROSSED | {"missing": {"age": 20}})
    releases = [
        PrivateEffect(domain, Budget(4.0), seed=2).fit(*data).release_
        for data in ((table, a, y), (blocks,))
    ]
    assert releases[0].to_json() == releases[1].to_json()


def test_a_rule_of_bins_reads_new_tables_and_names_its_parameters():
    table, a, y = drawn(2000)
    model = PrivateRule(domain_of(DECLARED), Budget(5.0), outcome_scale=0.5, seed=1).fit(
        table, a, y
    )
    assert "age=30 to below 50" in model.release_.parameters
    new = pd.DataFrame({"age": [20, 40, None, 40], "stage": ["I"] * 4, "dose": [0.5] * 4})
    effects = model.decision_function(new)
    assert effects[1] == effects[2] == effects[3]
    assert effects[0] != effects[1]
    assert "where age is 30 to below 50" in model.release_.summary()


def test_bins_are_groups_too():
    table, a, y = drawn(5000)
    domain = domain_of(DECLARED)
    release = PrivateEffect(domain, Budget(20.0), by="age", seed=1).fit(table, a, y).release_
    assert [one.group for one in release.groups] == list(bin_levels([30, 50]))
    young = (
        PrivateEffect(domain, Budget(20.0), where={"age": "below 30"}, seed=1)
        .fit(table, a, y)
        .release_
    )
    assert young.interval.low < 0.3 < young.interval.high


def test_the_plan_names_what_is_cut():
    domain = domain_of(CROSSED)
    plan = PrivateEffect(domain, Budget(1.0)).plan(1000, len(domain.columns))
    text = " ".join(str(plan).split())
    assert "age: 3 levels by its bins; age x stage: 6 levels, 3 by 2" in text


def test_the_data_holder_sees_levels_that_nobody_has():
    domain = domain_of(CROSSED)
    frame = pd.DataFrame({"age": [20, 40, "x"], "stage": ["I", "I", "II"], "dose": [0, 1, 0.5]})
    frame = frame.assign(a=["1", "0", "1"], y=[0.0, 1.0, 2.0])
    counts = record_counts(read_frame(frame), public=domain, columns=domain.columns)
    assert counts.levels["age x stage=below 30, I"] == 1
    assert counts.levels["age x stage=50 or more, II"] == 0
    assert counts.unreadable["age"] == 1
    assert counts.levels["age x stage=50 or more, I"] == 0
    cells = TableCells.of(read_frame(frame), domain.codebook, domain.ranges)
    assert next(one for one in cells.report() if one["name"] == "age")["declared"] == "number"


def test_a_codebook_in_python_says_the_same():
    book = Codebook(
        Treatment("a", "1", "0"),
        outcome="y",
        levels={"stage": ["I", "II"]},
        bins={"age": [30, 50]},
        crossed=[("age", "stage")],
    )
    ranges = book.ranges({"age": (18, 90), "dose": (0.0, 1.0)})
    domain = Domain(book.norm(ranges), 2.0, ranges=ranges, codebook=book)
    assert domain == domain_of(CROSSED)
