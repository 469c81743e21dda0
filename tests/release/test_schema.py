"""What no file of a release states is refused in one line; older files and programs of others are named."""

import json
import math

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, EffectRelease, PrivateTwoStageERM, Release
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.release import json_schema

DOMAIN = Domain(1.5, 1.0, ranges={"u": (-2.0, 2.0), "v": (-2.0, 2.0)}, intercept=0.1)


@pytest.fixture(scope="module")
def text() -> str:
    """A propensity and theta."""
    rng = np.random.default_rng(7)
    X, a, y = rng.uniform(-1, 1, (80, 2)), rng.integers(0, 2, 80), rng.uniform(-1, 1, 80)
    model = PrivateTwoStageERM(DOMAIN, Budget(1.0, 1e-3), "ipw_private", calibration="renyi")
    return model.set_params(seed=3).fit(X, a, y).release_.to_json()


def test_what_was_read_is_written_again(text) -> None:
    release = Release.from_json(text)
    assert release.to_json() == text
    assert set(json_schema()["required"]) <= set(json.loads(text))
    with pytest.raises(DeclarationError, match=r"declared\.goal: must be effect"):
        EffectRelease.from_json(text)
    with pytest.raises(DeclarationError, match="release JSON"):
        Release.from_json("not json")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda plain: plain.update(schema_version=2), "version 2: such files do not hold all"),
        (lambda plain: plain.update(schema_version=3), "version 3: such files do not hold all"),
        (lambda plain: plain.update(schema_version=4.0), "schema_version: must be 4"),
        (lambda plain: plain.pop("theta"), "theta: is missing"),
        (lambda plain: plain.update(theta=["x"]), r"theta\.0 = 'x': "),
        (lambda plain: plain.update(thet=[1.0]), "thet: is no entry of a release; did you mean theta"),
        (lambda plain: plain["declared"].update(calibratio="x"), "did you mean calibration"),
        (lambda plain: plain.update(private=True), "private does not agree"),
        (lambda plain: plain["guarantee"].update(epsilon=math.nan), "NaN"),
        (lambda plain: plain.pop("declared"), "declared.goal: must be weighted"),
        (lambda plain: plain["declared"].pop("calibration"), "guarantee.delta"),
        (lambda plain: plain["declared"].update(goal="effect"), "declared.goal"),
        (lambda plain: plain["declared"]["first"].pop("settings"), "declared"),
        (lambda plain: plain["declared"]["budget"].update(epsilon=-1.0), "epsilon"),
        (lambda plain: plain["steps"].pop(1), "steps"),
        (lambda plain: plain["steps"].append(plain["steps"][0]), "steps"),
        (lambda plain: plain.update(value=None), "value"),
        (lambda plain: plain["steps"][0].update(epsilon=0.9), r"steps\.0\.epsilon"),
        (lambda plain: plain["steps"][1].update(sensitivity=None), r"steps\.1\.sensitivity"),
        (lambda plain: plain["steps"][1].update(weights=[1.0]), "weights"),
        (lambda plain: plain["own_units"].update(constant=9.0), "own_units does not follow"),
    ],
)
def test_what_no_file_states_is_refused_in_one_line(text, change, complaint) -> None:
    plain = json.loads(text)
    change(plain)
    with pytest.raises(DeclarationError, match=complaint) as caught:
        Release.from_json(json.dumps(plain))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda plain: plain["steps"].pop(1), "releases theta"),
        (lambda plain: plain["steps"].append(plain["steps"][0]), "stands twice"),
        (lambda plain: plain["steps"][0].update(epsilon=0.9), "spend more"),
        (lambda plain: plain["steps"][1].update(delta=0.01), "spend more"),
        (lambda plain: plain["steps"][0].update(epsilon=-0.1), "epsilon"),
        (lambda plain: plain["steps"][1].update(sensitivity=None), "sensitivity"),
        (lambda plain: plain["steps"][0].update(scale=1e-6), "too little noise"),
        (lambda plain: plain["steps"][1].update(scale=plain["steps"][1]["scale"] / 3), "too little noise"),
        (lambda plain: plain["steps"][1].update(delta=0.0), "Gaussian noise is not pure"),
        (lambda plain: plain.update(parameters=["x"]), "a name for every value"),
    ],
)
def test_a_release_of_a_program_of_others_is_held_to_the_theorems(text, change, complaint) -> None:
    plain = json.loads(text)
    plain["declared"]["first"]["name"] = "somebody_elses"
    plain["guarantee"]["standing"] = "private"
    plain["private"] = True
    plain.pop("own_units", None)
    assert not Release.from_json(json.dumps(plain)).at_hand
    change(plain)
    with pytest.raises(DeclarationError, match=complaint):
        Release.from_json(json.dumps(plain))


def test_a_release_with_box_noise_states_its_box_and_is_read_back() -> None:
    rng = np.random.default_rng(7)
    X, a, y = rng.normal(size=(80, 2)), rng.integers(0, 2, 80), rng.normal(size=80)
    domain = Domain(1.5, 1.0, intercept=0.5, coordinate_bound=[1.0, 0.8])
    model = PrivateTwoStageERM(domain, Budget(1.0), "ipw_private", "itr", noise="box", seed=1)
    release = model.fit(X, a, y).release_
    assert [step.box for step in release.steps] == [(0.5, 1.0, 0.8)] * 2
    assert [step.noise.value for step in release.steps] == ["box"] * 2
    assert Release.from_json(release.to_json()) == release
    assert "box, scale" in release.summary()
    assert np.isfinite([row["noise_half_width"] for row in release.rows()]).all()
    plain = json.loads(release.to_json())
    for box in (None, [], [0.0, 1.0, 0.8], [1.0, -1.0, 1.0]):
        plain["steps"][1]["box"] = box
        with pytest.raises(DeclarationError, match="release JSON"):
            Release.from_json(json.dumps(plain))
    plain = json.loads(release.to_json())
    plain["steps"][1]["scale"] /= 3.0
    plain["guarantee"]["standing"] = "private"
    plain["private"] = True
    with pytest.raises(DeclarationError, match=r"steps\.1\.scale"):
        Release.from_json(json.dumps(plain))
