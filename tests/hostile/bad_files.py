"""Files that work, and files that are wrong in one way each."""

import json
from collections.abc import Iterator

from dp2erm_cvx.conformance import program_template
from tests.hostile.refused import FILES
from tests.hostile.releases import good

_ROWS = "".join(f"{k / 12 - 1},{(k * 7 % 24) / 12 - 1},{k % 2},{k % 5 - 2}\n" for k in range(24))
_DOMAIN = "covariate_bound = 1.5\noutcome_bound = 2\n"
_RANGES = "[ranges]\nx1 = [-1, 1]\nx2 = [-1, 1]\n"
_RECORDS = f'{_DOMAIN}treatment = "a"\noutcome_column = "y"\n{_RANGES}'
_SPENT = """[budget]
epsilon = 1
[ledger]
file = "book.db"
dataset = "trial"
"""
_QUESTIONS = f"{_RECORDS}{_SPENT}[[effect]]\nshare = 0.5\n[[rule]]\n"
_STAGES = '[[two_stage]]\nfirst_stage = "entropy_balancing"\nsecond_stage = "itr"\n'
_OWN = program_template("mine", "direct")

GOOD = {
    "data.csv": f"x1,x2,a,y\n{_ROWS}".encode(),
    "domain.toml": _RECORDS.encode(),
    "study.toml": _QUESTIONS.encode(),
    "effect.toml": f"{_RECORDS}{_SPENT}[[effect]]\n".encode(),
    "rule.toml": f"{_RECORDS}{_SPENT}[[rule]]\n".encode(),
    "fit.toml": f"{_RECORDS}{_SPENT}{_STAGES}".encode(),
    "own.py": _OWN.encode(),
    "release.json": json.dumps(good(0)).encode(),
    **FILES,
}

#: Wrong declarations are those of the tests of domains and codebooks; here is what no reader
#: expects.
_TOML = (
    "", "\x00", "[domain]\n" + _DOMAIN + "[csv]\nnobody = 1", "{}", "covariate_bound: 1.5",
    "[" * 5000,
    _DOMAIN + "nobody = 1\n" + _RANGES, _DOMAIN + _RANGES + "[nobody]\nx = 1",
    _DOMAIN + "ranges = 3",
    _DOMAIN + '[ranges]\nx1 = ["low", "high"]', _DOMAIN + "[ranges]\nx1 = [0, 1]\nx1 = [0, 2]",
    'covariate_bound = "two"\noutcome_bound = 2\n' + _RANGES,
    "covariate_bound = true\noutcome_bound = 2\n" + _RANGES,
    "covariate_bound = 1\noutcome_bound = []\n" + _RANGES,
    "covariate_bound = 1\noutcome_bound = 1e400\n" + _RANGES, "covariate_bound = " + "9" * 5000,
    "a = " + "[" * 3000 + "]" * 3000, _DOMAIN + "relation = 1\n" + _RANGES,
    _DOMAIN + "coordinate_bound = 0\n" + _RANGES, _DOMAIN + 'intercept = "one"\n' + _RANGES,
    _DOMAIN + _RANGES + '[treatment]\ncolumn = "a"\ntreated = "1"\ncontrol = "1"',
    _DOMAIN + _RANGES + '[treatment]\ncolumn = "a"\nnobody = "1"',
    _DOMAIN + "treatment = 3\n" + _RANGES,
    _DOMAIN + _RANGES + '[levels]\nx1 = ["a", "b"]', _DOMAIN + _RANGES + '[missing]\nx1 = "many"',
    _DOMAIN + _RANGES + '[csv]\nseparator = ";;"', _DOMAIN + _RANGES + '[csv]\nencoding = "nobody"',
    _DOMAIN + "csv = 1\n" + _RANGES, "\ufeff" + _DOMAIN + _RANGES,
)  # fmt: skip

#: Tables of fewer than two records.
SHORT = (b"x1,x2,a,y\n", b"x1,x2,a,y\n0,0,1,1\n")
_CSV = (
    "", "\n\n", *(one.decode() for one in SHORT), "x1,x2,a,y,y\n" + _ROWS, "x1,x1,a,y\n" + _ROWS,
    "x1;x2;a;y\n" + _ROWS.replace(",", ";"), "x1\tx2\ta\ty\n" + _ROWS.replace(",", "\t"), _ROWS,
    '"x1,x2,a,y\n' + _ROWS, "x1,x2,a\n" + _ROWS, "X1,X2,A,Y\n" + _ROWS, "\x00\x00\x00", "{}",
    "x1,x2,a,y" + "z" * 140_000 + "\n" + _ROWS,
)  # fmt: skip
_RAW_CSV = (
    b"\xff\xfe" + f"x1,x2,a,y\n{_ROWS}".encode("utf-16-le"),
    b"\xff\xfe\x00\x01",
    bytes(range(256)),
    b"PK\x03\x04rest",
)

_JSON = (
    "", "{}", "[]", "null", "{", "NaN", "[" * 100_000, '{"private": true, "private": true}',
    '{"estimand": "ate"}',
    '{"flipped_share": 0.5}', '{"theta": [1]}', "\x00", "9" * 5000, '{"schema": 99}', '"text"',
)  # fmt: skip

_BROKEN = "raise RuntimeError('own fault')"
_PYTHON = (
    "", "def (", "import nobody_has_this_module\n", f"{_BROKEN}\n", "import sys\nsys.exit(0)\n",
    "x = 1\n",
    "\x00",
    "def f():\n    return f()\nf()\n", "raise SystemExit('text')\n",
    "class Mine:\n    name = 'mine'\n",
    "from dp2erm_cvx.program import FirstStage\nclass Mine(FirstStage):\n    pass\n",
    _OWN + "\n\nraise ValueError('a\\nb')\n",
)  # fmt: skip

WRONG: dict[str, tuple[bytes, ...]] = {
    "domain.toml": (*(one.encode() for one in _TOML), b"\xff\xfe", b"name = '\xe9'"),
    # a study of what is wrong in a domain, and of what is wrong with a file
    "effect.toml": tuple(f"{one}\n{_SPENT}[[effect]]\n".encode() for one in _TOML),
    "study.toml": tuple(
        _QUESTIONS.replace(old, new).encode()
        for old, new in (
            ("[[rule]]", "[[rule]]\nnoise = 'laplace'"),
            ("[[rule]]", "[[two_stage]]\nfirst_stage = 3"),
            ("[[rule]]", "[[two_stage]]\nfirst_stage = { ridge = 1 }"),
            ("[[rule]]", "[[two_stage]]\nfirst_stage = { name = 'nobody' }"),
            ("[[rule]]", "[[two_stage]]\nfirst_stage = { name = 'overlap', ridge = -1 }"),
            ("[[rule]]", "[[two_stage]]\nsecond_stage = 'nobody'"),
            ("share = 0.5", "where = 'x1'"),
            ("share = 0.5", "prognostic = ['nobody']"),
            ("share = 0.5", "settings = { cap = 1 }"),
            ('dataset = "trial"', 'dataset = "nobody"'),
        )
    ),
    "data.csv": (*(one.encode() for one in _CSV), *_RAW_CSV),
    "release.json": (*(one.encode() for one in _JSON), b"\xff\xfe{}"),
    "book.db": (b"no database at all, only text " * 40, b"SQLite format 3\x00" + b"\x00" * 200),
    "own.py": (*(one.encode() for one in _PYTHON), b"\xff\xfe"),
}


def releases() -> Iterator[bytes]:
    """Good releases of every kind with one entry replaced by what none states."""
    for number in (0, 3, 4):
        plain = good(number)
        yield from (json.dumps(plain | {name: {"nobody": 1}}).encode() for name in plain)
    plain = good(4)
    yield json.dumps(plain | {"settings": plain["settings"] | {"value_share": None}}).encode()
