"""The worst pairs of published methods, as files: what the page says of them, and planted mistakes."""

import importlib.util
from functools import partial
from pathlib import Path

import pytest
from competitors import EFFECTS, RULES

from dp2erm_cvx.audit import Declared, replay_additive
from dp2erm_cvx.audit.finding import SavedPair, differing_rows

DOCS = Path(__file__).parents[3] / "docs/experiments"
PAIRS = DOCS / "counterexamples/pairs"
PAGE = (DOCS / "audited_methods.md").read_text(encoding="utf-8")


def script(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"counterexamples/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


published = script("published")

#: What a planted sensitivity is taken for, over what it is: a number of folds, a bound on weights, a norm.
WRONG_SENSITIVITY = {
    "folds_aipw": 1 / 2,
    "folds_g": 1 / 2,
    "folds_ipw": 1 / 2,
    "noisy_interactions": 1 / 3,
    "noisy_least_squares": 4 / 9,
    "private_propensity": 1 / 10,
    "subsample_aggregate": 1 / 3,
    "weighted_learning": 1 / 2,
}
PLANTED = {"folds_g": "predictions", "folds_aipw": "predictions"}


def replayed(name, file=None, declared=None, **settings):
    mechanism = partial(getattr(published, name), **settings)
    return replay_additive(PAIRS / (file or name), mechanism, declared)


def test_every_published_method_has_a_pair():
    folds = {"folds_g", "folds_ipw", "folds_aipw"}
    known = (set(EFFECTS) | set(RULES)) - {"dpate", "folds"} | folds
    assert known == set(WRONG_SENSITIVITY)
    assert {path.stem for path in PAIRS.glob("*.json")} == {
        name for one in known for name in (one, f"{one}_{PLANTED.get(one, 'clip')}")
    }


@pytest.mark.parametrize("name", WRONG_SENSITIVITY)
def test_a_method_as_stated_loses_what_the_page_says_and_no_more(name):
    pair, found = SavedPair.load(PAIRS / name), replayed(name)
    assert differing_rows(*pair.raw()).sum() == 1
    assert found.found == pytest.approx(pair.finding["audit"]["found"], rel=1e-6)
    assert not found.exceeds
    assert not found.uncovered
    # Gaussian noise: the same share of what is declared
    gaussian = replayed(name, None, Declared(1.0, 1e-5), delta=1e-5)
    assert gaussian.found / gaussian.allowed == pytest.approx(found.found, rel=1e-6)
    assert not gaussian.exceeds
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))
    assert f"| {found.found:.3f} | {gaussian.found:.3f} |" in row
    assert f"**{2 * found.found:.3f}**" in row


@pytest.mark.parametrize("name", WRONG_SENSITIVITY)
def test_what_is_planted_in_a_method_is_caught(name):
    half = replayed(name, noise=0.5)
    assert half.exceeds
    assert half.uncovered
    assert replayed(name, None, Declared(1.0, 1e-5), delta=1e-5, noise=0.5).exceeds
    off = replayed(name, sensitivity=WRONG_SENSITIVITY[name])
    assert off.exceeds
    assert off.reached > 1.0
    planted = PLANTED.get(name, "clip")
    unclipped = replayed(name, f"{name}_{planted}", **{planted: 0})
    assert unclipped.exceeds
    assert unclipped.reached > 1.0
    assert not replayed(name, f"{name}_{planted}").exceeds
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))
    for found in (off, unclipped):
        assert f"**{found.found:.3g}**" in row


def test_sums_with_gaussian_noise_have_the_mu_that_the_page_says():
    ours = script("ours")
    asked, half = ours.mus(1.0), ours.mus(2.0, releases=10)
    assert set(asked) == {"cells", "score"}
    for name, (met, stated) in asked.items():
        assert 0.8 * stated < met <= stated * (1.0 + 1e-12)
        assert half[name][0] > stated
    assert f"The score has {asked['score'][0]:.4f} where its share" in PAGE.replace(" .", " 0.")
