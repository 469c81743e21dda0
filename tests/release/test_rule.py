"""What a release recommends, read back from its JSON."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Release, effects, recommend
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.errors import DataError, DeclarationError

SAMPLE = simulate("linear", 120, rng=0).dataset
NAMES = [f"c{k}" for k in range(10)]
FRAME = pd.DataFrame(SAMPLE.X, columns=NAMES)


@pytest.fixture(scope="module")
def model():
    domain = Domain(1.2, 2.0, intercept=0.5, ranges=dict.fromkeys(NAMES, (-2, 2)))
    return PrivateTwoStageERM(domain, Budget(5.0), seed=0).fit(FRAME, SAMPLE.a, SAMPLE.y)


def test_a_release_recommends_what_its_model_does(model):
    release = Release.from_json(model.release_.to_json())
    assert np.array_equal(recommend(release, FRAME), model.predict(FRAME))
    assert np.array_equal(effects(release, SAMPLE.X), effects(release, FRAME))
    # by name, whatever else stands in the frame and in whatever order
    shuffled = FRAME[NAMES[::-1]].assign(other="text")
    assert np.array_equal(effects(release, shuffled), effects(release, FRAME))


def test_other_columns_and_damaged_releases_are_refused(model):
    release = model.release_
    with pytest.raises(DataError, match="shape"):
        effects(release, SAMPLE.X[:, :4])
    with pytest.raises(DataError, match="row 2, column 'c3'"):
        recommend(release, np.where(np.arange(120)[:, None] * np.eye(10)[3] == 1.0, np.nan, SAMPLE.X))
    with pytest.raises(DataError, match="c9"):
        recommend(release, FRAME.drop(columns="c9"))
    with pytest.raises(DeclarationError, match="release JSON"):
        effects(dataclasses.replace(release, theta=release.theta[:3]), FRAME)
