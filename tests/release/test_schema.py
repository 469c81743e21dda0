"""What no file of a release states is refused in one line; older files and programs of others are named."""

import json
import math

import numpy as np
import pytest

from dp2erm_cvx import EffectRelease, Release
from dp2erm_cvx.errors import DeclarationError
from tests.every_release import release_of


@pytest.fixture
def plain():
    """A propensity and theta."""
    return json.loads(release_of("scheme under Renyi").to_json())


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
        (lambda plain: plain.update(private=False), "private does not agree"),
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
def test_what_no_file_states_is_refused_in_one_line(plain, change, complaint) -> None:
    with pytest.raises(DeclarationError, match=r"declared\.goal: must be effect"):
        EffectRelease.from_json(json.dumps(plain))
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
def test_a_release_of_a_program_of_others_is_held_to_the_theorems(plain, change, complaint) -> None:
    plain["declared"]["first"]["name"] = "somebody_elses"
    plain.pop("own_units", None)
    assert not Release.from_json(json.dumps(plain)).at_hand
    change(plain)
    with pytest.raises(DeclarationError, match=complaint):
        Release.from_json(json.dumps(plain))


def test_a_release_with_box_noise_states_its_box() -> None:
    release = release_of("scheme in a box")
    assert [step.noise.value for step in release.steps] == ["box"] * 2
    assert [step.box for step in release.steps] == [(0.5, 1.0, 0.8)] * 2
    assert "box, scale" in release.summary()
    assert np.isfinite([row["noise_half_width"] for row in release.rows()]).all()
    for box in (None, [], [0.0, 1.0, 0.8], [1.0, -1.0, 1.0]):
        plain = json.loads(release.to_json())
        plain["steps"][1]["box"] = box
        with pytest.raises(DeclarationError, match="release JSON"):
            Release.from_json(json.dumps(plain))
    plain = json.loads(release.to_json())
    plain["steps"][1]["scale"] /= 3.0
    with pytest.raises(DeclarationError, match=r"steps\.1\.scale"):
        Release.from_json(json.dumps(plain))
