"""A folder with data and a domain, for every command."""

import pytest

from tests.command_line import write_files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files()
    return tmp_path
