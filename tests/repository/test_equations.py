"""Equations that the code cites by number stand on the page of the interval's allowances."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "theory" / "allowances.md"


def test_the_page_numbers_its_equations_in_order():
    numbers = [int(one) for one in re.findall(r"\\tag\{A(\d+)\}", PAGE.read_text("utf-8"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_every_equation_that_the_code_cites_stands_on_the_page():
    page = PAGE.read_text("utf-8")
    for path in sorted((ROOT / "dp2erm_cvx" / "inference").glob("*.py")):
        for number in re.findall(r"\((A\d+)\)", path.read_text("utf-8")):
            assert f"\\tag{{{number}}}" in page, f"{path.name} cites ({number})"


def test_every_constant_of_the_page_is_one_of_the_code():
    page = PAGE.read_text("utf-8")
    sources = [path.read_text("utf-8") for path in (ROOT / "dp2erm_cvx").rglob("*.py")]
    names = re.findall(r"^\| `([A-Z_]+)`", page, flags=re.MULTILINE)
    assert names
    for name in names:
        assert any(re.search(rf"^{name} = ", source, flags=re.MULTILINE) for source in sources)


def test_no_numbered_equation_breaks_its_lines():
    """Sphinx puts a formula with a line break into ``split``, where MathJax refuses its number."""
    formulas = re.findall(r"\$\$(.*?)\$\$", PAGE.read_text("utf-8"), flags=re.DOTALL)
    numbered = [formula for formula in formulas if "\\tag{" in formula]
    assert numbered
    assert [formula for formula in numbered if "\\\\" in formula] == []
