"""Hostile command lines: flags dropped, repeated, unknown or of the wrong type, files in the wrong place."""

from __future__ import annotations

from typing import Any

import click

from dp2erm_cvx.cli import main
from tests.hostile.command import run
from tests.hostile.outcome import Outcome
from tests.hostile.values import Generator, happens, pick

WORDS = (
    "", " ", "0", "1", "2", "-1", "0.5", "1e-300", "1e300", "1e999", "nan", "inf", "-inf", "abc", "é", "😀",
    "\ud800",
    "--", "-", "--nope", "--json", "a,b", ",", ",,", "x1", "x1,x2", "x1=0:1", "x1=1:0", "x1=nan:1", "=0:1",
    "x1=", ":",
    "itr", "uniform", "ipw_private", "ipw_logistic", "mmd", "entropy_balancing_hard", "ridge=1", "ridge=",
    "=1", "overlap", "inverse_probability_tilting", "energy_balancing", "stable_balancing", "itr_huber",
    "kernel_mean_matching", "stable_balancing_hard", "itr_logistic", "regression", "threshold=0",
    "tolerance=0",
    "ridge=nan", "coefficient=0.1,0.2", "kernel=laplace:1", "balance=2", "l1:1", "l2:1", "box:1", "whole",
    "l1:nan",
    "gaussian", "renyi", "output", "auto", "paper", "clarabel", "scs", "osqp", "first_certified",
    "data.csv", ".",
    "domain.toml", "nope.csv", "/", "nope/nope", "replace-one", "equal", "1_000", "1,2,3", "9" * 400,
    "9" * 5000,
    "x" * 5000, "a\nb", "%s", "{}", "$HOME", "0x10", "1e5", "TRUE", "-0", "+1", "proportional", "pld", "t",
    "att", "risks",
    ";", "latin-1", "idna", "draft.toml",
    "propensity=0.5", "propensity=constant", "rows=arms", "cap=2", "first_fit=none",
)  # fmt: skip
DATA = "x1,x2,a,y\n" + "".join(
    f"{k / 12 - 1},{(k * 7 % 24) / 12 - 1},{k % 2},{k % 5 - 2}\n" for k in range(24)
)
FILES = {
    "data.csv": DATA,
    "domain.toml": "covariate_bound = 1.5\noutcome_bound = 2\n[ranges]\nx1 = [-1, 1]\nx2 = [-1, 1]\n",
}
_FIT = "data.csv --treatment a --outcome y --domain domain.toml --epsilon 1 --json"
BASES: dict[str, list[str]] = {
    "fit": _FIT.split(),
    "effect": _FIT.split(),
    "check": ["data.csv", "--treatment", "a", "--outcome", "y", "--domain", "domain.toml"],
    "show": ["release.json"],
    "predict": ["release.json", "data.csv"],
    "bounds": ["--program", "entropy_balancing", "--covariate-bound", "1", "--json"],
    "programs": ["--json"],
    "certify": ["--n", "20", "--program", "uniform", "--solver", "newton", "--json"],
    "audit": ["--program", "ipw_logistic", "--covariate-bound", "1", "--n", "20", "--solves", "60", "--json"],
    "ledger": ["book.db", "--json"],
    "demo": ["--nope"],
}
#: Without these the honest command takes longer than a case may.
_KEPT = {
    "certify": {"--n", "--program", "--solver"},
    "audit": {"--program", "--n", "--solves"},
    "demo": {"--nope"},
}


def names(command: str) -> list[str]:
    parameters = main.commands[command].params
    return [name for option in parameters if isinstance(option, click.Option) for name in option.opts]


def words(rng: Generator) -> list[str]:
    command = pick(rng, ("fit", "effect") * 3 + tuple(BASES) + ("bounds", "ledger"))
    listed: list[Any] = [command, *BASES[command]]
    kept = _KEPT.get(command, set())
    for _ in range(int(pick(rng, (0, 1, 1, 2, 3)))):
        where = int(rng.integers(1, len(listed) + 1))
        how = int(rng.integers(6))
        if how <= 1:
            listed += [pick(rng, names(command)), pick(rng, WORDS)]
        elif how == 2 and where < len(listed) and listed[where - 1] not in kept and listed[where] not in kept:
            listed[where] = pick(rng, WORDS)
        elif how == 3 and where < len(listed) and not kept:
            del listed[where]
        elif how == 4:
            listed.append(pick(rng, (*WORDS, *names(command))))
        elif where < len(listed) and not kept:
            listed[where:where] = listed[where : where + 2]
    if happens(rng, 0.02):
        listed = [pick(rng, WORDS), *listed[int(rng.integers(len(listed))) :]]
    return listed


def case(rng: Generator) -> Outcome:
    return run(words(rng))
