"""What no file of a release states is refused in one line; older files and programs of others are
named.
"""

import json
import math

import numpy as np
import pytest

from dp2erm_cvx import EffectRelease, Release, read_release
from dp2erm_cvx.errors import DeclarationError
from tests.every_release import release_of


@pytest.fixture
def plain(name):
    return json.loads(release_of(name).to_json())


SCHEME, BOX, RULE = "scheme under Renyi", "scheme in a box", "rule of all"
BOXES = (None, [], [0.0, 1.0, 0.8], [1.0, -1.0, 1.0])


def endless(plain):
    plain["gains"] = [
        gain | {"interval": gain["interval"] | {"high": None}} for gain in plain["gains"]
    ]


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        (SCHEME, lambda p: p.update(schema_version=2), "version 2: such files do not hold all"),
        (SCHEME, lambda p: p.update(schema_version=3), "version 3: such files do not hold all"),
        (SCHEME, lambda p: p.update(schema_version=5.0), "schema_version: must be 5"),
        (SCHEME, lambda p: p.pop("theta"), "theta: is missing"),
        (SCHEME, lambda p: p.update(theta=["x"]), r"theta\.0 = 'x': "),
        (
            SCHEME,
            lambda p: p.update(thet=[1.0]),
            "thet: is no entry of a release; did you mean theta",
        ),
        (SCHEME, lambda p: p["declared"].update(calibratio="x"), "did you mean calibration"),
        (SCHEME, lambda p: p.update(private=False), "private does not agree"),
        (SCHEME, lambda p: p["guarantee"].update(epsilon=math.nan), "NaN"),
        (SCHEME, lambda p: p.pop("declared"), "declared.goal: must be weighted"),
        (SCHEME, lambda p: p["declared"].pop("calibration"), "guarantee.delta"),
        (SCHEME, lambda p: p["declared"].update(goal="effect"), "declared.goal"),
        (SCHEME, lambda p: p["declared"]["first"].pop("settings"), "declared"),
        (SCHEME, lambda p: p["declared"]["budget"].update(epsilon=-1.0), "epsilon"),
        (SCHEME, lambda p: p["steps"].pop(1), "steps"),
        (SCHEME, lambda p: p["steps"].append(p["steps"][0]), "steps"),
        (SCHEME, lambda p: p.update(value=None), "value"),
        (SCHEME, lambda p: p["steps"][0].update(epsilon=0.9), r"steps\.0\.epsilon"),
        (SCHEME, lambda p: p["steps"][1].update(sensitivity=None), r"steps\.1\.sensitivity"),
        (SCHEME, lambda p: p["steps"][1].update(weights=[1.0]), "weights"),
        (SCHEME, lambda p: p["own_units"].update(constant=9.0), "own_units does not follow"),
        *((BOX, lambda p, box=box: p["steps"][1].update(box=box), "box") for box in BOXES),
        (BOX, lambda p: p["steps"][1].update(scale=p["steps"][1]["scale"] / 3), r"steps\.1\.scale"),
        (RULE, endless, "gains"),
        (RULE, lambda p: p.update(gains=[]), "gains"),
        (RULE, lambda p: p["gains"].pop(), "gains"),
    ],
)
def test_what_no_file_states_is_refused_in_one_line(name, plain, change, complaint) -> None:
    other = Release if name == RULE else EffectRelease
    with pytest.raises(DeclarationError, match=r"declared\.goal: must be"):
        read_release(json.dumps(plain), other)
    change(plain)
    with pytest.raises(DeclarationError, match=complaint) as caught:
        read_release(json.dumps(plain), type(release_of(name)))
    assert "\n" not in str(caught.value)


def test_a_release_with_box_noise_states_its_box() -> None:
    release = release_of(BOX)
    assert [(step.noise.value, step.box) for step in release.steps] == [
        ("box", (0.5, 1.0, 0.8))
    ] * 2
    assert "box, scale" in release.summary()
    assert np.isfinite([row["noise_half_width"] for row in release.rows()]).all()
