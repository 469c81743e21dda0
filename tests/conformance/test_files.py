"""Files of programs, names and kinds."""

from __future__ import annotations

import re

import pytest

from dp2erm_cvx.conformance import load_program, program_template, programs_of_file
from dp2erm_cvx.errors import DeclarationError, ProgramError
from tests.command_line import run as command
from tests.conformance.class_style import direct


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "holds no program"),
        ("def broken(:\n", "line 1: SyntaxError"),
        ("x = 1\ny = 1 / 0\n", "line 2: ZeroDivisionError"),
        ("raise SystemExit(3)\n", "line 1: SystemExit: 3"),
        (
            "from dp2erm_cvx.program import FirstStage\n\n\nclass Half(FirstStage):\n    pass\n",
            "does not state data, declare, model",
        ),
    ],
)
def test_files_without_a_program_say_why(text, message, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProgramError, match=re.escape(message)):
        programs_of_file(path)


def test_a_file_that_is_edited_is_read_again(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(direct("mine"), encoding="utf-8")
    (first,) = programs_of_file(path)
    path.write_text(direct("yours"), encoding="utf-8")
    (second,) = programs_of_file(path)
    assert (first.name, second.name) == ("mine", "yours")


def test_unknown_names_and_kinds_are_refused(tmp_path):
    with pytest.raises(ProgramError, match="no file"):
        programs_of_file(tmp_path / "none.py")
    with pytest.raises(ProgramError, match="neither"):
        load_program("nobody")
    for name in ("3x", "Mine", "class", "a-b", "", "cp", "scheme"):
        with pytest.raises(DeclarationError, match="name"):
            program_template(name, "direct")
    with pytest.raises(DeclarationError, match="array"):
        program_template("array", "quadratic")
    with pytest.raises(DeclarationError, match="kind"):
        program_template("mine", "linear")
    refused = command("check-program", "uniform", "--solves", "0")
    assert (refused.exit_code, "solves" in refused.stderr) == (2, True)
