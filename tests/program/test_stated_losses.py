"""What the library states of its second stages is what CVXPY reads of their functions."""

import numpy as np
import pytest

from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.program import registry, second_stage, stated_losses

STAGES = [name for name, made in registry.second_stages().items() if made.of_library]
SPACES = [Space(1.0, 1.0), Space(2.3, 0.7), Space(0.4, 31.0)]
#: Settings of functions that have some; others have none.
SETTINGS = {
    "itr_huber": {"threshold": 0.37},
    "itr_saturating": {"slope": 2},
    "saturating_regression": {"slope": 5.1},
}


def test_nothing_is_stated_that_is_not_there():
    """A second stage is stated by its own function, as are all others of the library."""
    assert set(STAGES) == set(stated_losses._entries()["second_stages"])


def test_digests_are_those_of_the_code_of_the_files():
    """Whoever changes a program puts its new digest into the file, which this test prints."""
    available = {**registry.first_stages(), **registry.second_stages()}
    for table in stated_losses._entries().values():
        stated = {name: entry["source"] for name, entry in table.items()}
        files = {name: available[name].function.__code__.co_filename for name in table}
        assert stated == {name: stated_losses._digest(file) for name, file in files.items()}


def test_docstrings_comments_and_line_ends_do_not_change_a_digest(tmp_path):
    first, second, other = (tmp_path / f"{name}.py" for name in ("first", "second", "other"))
    first.write_text('def f(x):\n    """One."""\n    return g(x, 1)\n', encoding="utf-8")
    second.write_text(
        'def f(x):\n    """Two\n    lines."""\n    return g(\n        x, 1)  # one\n',
        encoding="utf-8",
    )
    other.write_text('def f(x):\n    """One."""\n    return g(x, 2)\n', encoding="utf-8")
    digest = stated_losses._digest
    assert digest(str(first)) == digest(str(second)) != digest(str(other))


def numbers(part, records):
    return (
        None
        if part is None
        else (part[0], part[1].name(), part[1].within, part[1].of(records).tolist())
    )


def told(form, records):
    term = form.term
    parts = [(one.atom, one.coefficient, one.scale, one.shift) for one in term.curve.parts]
    rows = term.rows.name(), term.rows.within, term.rows.of(records).tolist()
    beside = [numbers(part, records) for part in (term.offset, term.factor, term.tilt)]
    rest = form.feasible, form.ridge, form.l1, form.public, form.is_mean, form.own
    return rows, parts, beside, rest


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize("space", SPACES, ids=lambda space: f"M={space.covariate_bound}")
@pytest.mark.parametrize("name", STAGES)
def test_what_is_stated_is_what_is_read(monkeypatch, name, space):
    made = registry.second_stages()[name]
    given = [{}, SETTINGS[name]] if name in SETTINGS else [{}]
    if not made().own_columns and made().coordinates is None:
        given.append({"features": (0, 2), "features_bound": 0.3})
    x = np.sin(np.outer(np.arange(1.0, 8.0), np.arange(1.0, 5.0)))
    records = Records.within(space, x, np.arange(7) % 2, np.cos(np.arange(7.0)))
    for settings in given:
        assert stated_losses.stated_loss(made) is not None
        stated = made(**settings).read_at(space, 7, 4)
        with monkeypatch.context() as patched:
            patched.setattr(stated_losses, "_digest", lambda path: "another")
            read = made(**settings).read_at(space, 7, 4)
        assert told(stated.reading.form, records) == told(read.reading.form, records)
        assert stated.settings() == read.settings()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ipw_logistic", {}),
        ("ipw_logistic", {"trim": 7}),
        ("ipw_private", {"trim": 1.0000123}),
        ("odds_weights", {}),
        ("odds_weights", {"trim": 1.0}),
        ("odds_weights", {"trim": 0.37}),
        ("overlap", {}),
        ("overlap_private", {}),
        ("inverse_probability_tilting", {}),
        ("tilting_private", {}),
    ],
)
def test_stated_margins_are_those_that_are_read(monkeypatch, name, settings):
    made = registry.first_stages()[name]
    assert stated_losses.stated_margins(made)
    stated = made(**settings)
    monkeypatch.setattr(stated_losses, "_digest", lambda path: "another")
    read = made(**settings)
    assert not stated_losses.stated_margins(made)
    assert stated.declared_margins == read.declared_margins  # losses, weights and both in words


def test_a_function_whose_file_has_another_digest_is_read(monkeypatch):
    made = registry.second_stages()["itr"]
    monkeypatch.setattr(stated_losses, "_digest", lambda path: "another")
    assert stated_losses.stated_loss(made) is None
    assert "theta" in made().reading.text


def test_nothing_is_stated_of_an_authors_function_of_the_same_name():
    import cvxpy as cp

    @second_stage()
    def regression(theta, records):
        return cp.Problem(cp.Minimize(cp.sum(cp.huber(records.x @ theta - records.y))))

    assert stated_losses.stated_loss(regression) is None
