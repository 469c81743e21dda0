"""Attributes of releases, flags of commands and tests that pages name exist, and where the page
says.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dp2erm_cvx import EffectRelease, Release, RuleRelease
from dp2erm_cvx.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
KINDS = {Release: "PrivateTwoStageERM", EffectRelease: "PrivateEffect", RuleRelease: "PrivateRule"}
#: A block of code, or what stands in a line between back quotes.
_CODE = re.compile(r"^```(?:python|sh|pycon)\n(.*?)^```$|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
#: Flags of the scripts beside the pages, which are no commands of the package.
_SCRIPTS = {
    flag
    for folder in ("experiments", "benchmarks")
    for path in (ROOT / "docs" / folder).glob("*.py")
    for flag in re.findall(
        r'(?:add_argument|option)\(\s*"(--[a-z][\w-]*)"', path.read_text(encoding="utf-8")
    )
}


def attributes(kind: type) -> set[str]:
    return {*dir(kind), *kind.__dataclass_fields__}  # type: ignore[attr-defined]


def code(text: str) -> Iterator[tuple[str, str]]:
    """All code of a page, each with what says of which kind of release it is: its line, or the
    page.
    """
    for match in _CODE.finditer(text):
        block, span = match.groups()
        line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0]
        yield (block, text) if span is None else (span, line)


def missing_attributes(text: str) -> list[str]:
    """Attributes of ``release`` that neither all kinds have, nor one that is named beside them."""
    missing = []
    for source, context in code(text):
        for name in re.findall(r"(?<![\w.])release_?\.([a-z]\w*)", source):
            of = [kind for kind in KINDS if name in attributes(kind)]
            words = set(re.findall(r"\w+", context))
            named = any({kind.__name__, KINDS[kind]} & words for kind in of)
            if name != "json" and len(of) < len(KINDS) and not named:  # release.json is a file
                missing.append(name)
    return missing


def flags(command: click.Command) -> set[str]:
    own = {
        flag
        for parameter in command.params
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    parts = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union({"--help"}, *map(flags, parts))


def missing_flags(text: str) -> list[str]:
    """Flags that the command on their line does not have, or no command where none is named."""
    missing = []
    for line in text.replace("\\\n", " ").splitlines():
        for command, words in re.findall(r"(?:dp2erm ([\w-]+))?((?:(?!dp2erm )[^`])*)", line):
            known = flags(main.commands.get(command, main)) | _SCRIPTS
            missing += set(re.findall(r"(?<![\w-])--[a-z][\w-]*", words)) - known
    return missing


def missing_commands(text: str) -> list[str]:
    """Words behind ``dp2erm`` in code that are no commands."""
    named = re.findall(r"(?:`|^ *)dp2erm ([a-z][a-z-]*)", text, re.MULTILINE)
    return [name for name in named if name not in main.commands]


@pytest.mark.one_row_in(8)
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_names_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert (missing_attributes(text), missing_flags(text), missing_commands(text)) == ([], [], [])
    assert [
        name for name in re.findall(r"\btests/[\w/]+\.py\b", text) if not (ROOT / name).is_file()
    ] == []
    assert not re.search(r"^(?:<{7}|>{7}|\|{7}|={7}$)", text, re.MULTILINE), (
        "a merge is not finished"
    )


def test_names_that_do_not_exist_are_missed() -> None:
    assert missing_attributes(
        "Any release has `release.theta` and `release.guarantee.epsilon`."
    ) == ["theta"]
    assert missing_attributes("`release_.value` of a `PrivateRule`.") == ["value"]
    assert missing_attributes("`PrivateTwoStageERM`: `release_.theta`.\n`release.nothing`") == [
        "nothing"
    ]
    assert missing_attributes("```python\nprint(release.gains)\n```\n") == ["gains"]
    assert missing_attributes("PrivateRule\n```python\nprint(release.gains)\n```\n") == []
    assert missing_flags("`dp2erm show a.json --blocks never`, `dp2erm run --blocks never`") == [
        "--blocks"
    ]
    assert missing_commands("`dp2erm fit data.csv`, `dp2erm run`\n    dp2erm rule x.csv") == [
        "fit",
        "rule",
    ]
    assert missing_flags("`--blocks`, `--nothing`; `dp2erm ledger show --json`") == ["--nothing"]


def inline_displays(text: str) -> list[str]:
    """Display formulas with text right before or after, of which MyST makes inline formulas."""
    formulas = re.finditer(
        r"(?:^|\n)([^\n]*)\n *(\$\$.*?\$\$)(?=\n([^\n]*)|$)", "\n" + text, re.DOTALL
    )
    return [match[2] for match in formulas if match[1].strip() or (match[3] or "").strip()]


def test_display_formulas_are_paragraphs() -> None:
    assert inline_displays("so that\n$$x$$\n\n$$\ny\n$$\nas above\n\n$$z$$\n") == [
        "$$x$$",
        "$$\ny\n$$",
    ]
    assert [
        formula for path in PAGES for formula in inline_displays(path.read_text(encoding="utf-8"))
    ] == []
