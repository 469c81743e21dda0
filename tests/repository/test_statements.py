"""The table of statements on the page of theory: one number each, with page, code and test."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"
ROW = re.compile(
    r"^\| \[(?P<name>[A-Z][a-z]+ \d+|Tilt lemma)\]\((?P<page>[\w/]+\.md)[^)]*\) \| [^|]+ "
    r"\| `(?P<code>[\w/]+\.py)` `(?P<test>[\w/]+\.py)` \|$",
    re.MULTILINE,
)
TABLE = [row.groupdict() for row in ROW.finditer((PAGES / "theory.md").read_text())]
NAMES = [row["name"] for row in TABLE]
#: "Theorem 3", "Theorems 1, 2 and 15 to 19", also where a line of a docstring ends in between.
CITED = re.compile(
    r"\b(Theorem|Lemma)s?\s+(?:#:? )?(\d+(?:(?:, (?:and )?|,?\s+(?:and|to|or)\s+)\d+)*)(?!\.\d)"
)


def cited(text):
    """Names of the statements that a text cites, ranges by both of their ends."""
    for match in CITED.finditer(text):
        for number in re.findall(r"\d+", match[2]):
            yield f"{match[1]} {number}"


def test_numbers_are_given_once_and_without_gaps():
    theorems = [int(name.split()[1]) for name in NAMES if name.startswith("Theorem")]
    assert theorems == list(range(1, len(theorems) + 1))
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("row", TABLE, ids=NAMES)
def test_a_statement_stands_where_the_table_says(row):
    page = (PAGES / row["page"]).read_text()
    name = re.escape(row["name"])
    assert re.search(rf"^(#+ |\*\*)({name}\b|.*\({name}\))", page, re.MULTILINE | re.IGNORECASE)
    assert (ROOT / "dp2erm_cvx" / row["code"]).is_file()
    assert (ROOT / "tests" / row["test"]).is_file()


@pytest.mark.parametrize("folder", ["dp2erm_cvx", "problems"])
def test_code_cites_statements_of_the_table_alone(folder):
    unknown = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / folder).rglob("*.py")
        for name in cited(path.read_text())
        if name not in NAMES
    }
    assert not unknown


def test_citations_are_read_across_lines():
    text = "(Theorems 1, 2\n    and 15 to 19), by\n# Theorem\n# 99"
    assert set(cited(text)) == {f"Theorem {n}" for n in (1, 2, 15, 19)} | {"Theorem 99"}
