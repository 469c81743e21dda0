"""Arrays beside the records reach workers once, and always as they are."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dp2erm_cvx.blocked import contents, parcels
from dp2erm_cvx.blocked.contents import contents_name
from dp2erm_cvx.blocked.engine import alone
from dp2erm_cvx.blocked.parcels import Apart
from dp2erm_cvx.blocks import constant


class Here(Apart):
    """Workers that are told of by pickles, all of them in this process."""

    number = 2

    def __init__(self):
        super().__init__()
        self.sent, self.done = [], []

    def pass_on(self, tasks, told=lambda done: None):
        pickles = [pickle.dumps(task) for task in tasks]
        self.sent.append([len(one) for one in pickles])
        return [alone(*pickle.loads(one)) for one in pickles]


def total(number, *beside):
    assert not any(one.flags.writeable for one in beside)
    return number, [(one.dtype, float(one.sum())) for one in beside]


def tasks(*arrays):
    return [(k, *(array[k * 500 : k * 500 + 500] for array in arrays)) for k in range(2)]


def told(done):
    pass


@pytest.fixture
def engine():
    yield Here()
    parcels._SHELVES.clear()


def plain(work):
    return [(k, [(one.dtype, float(one.sum())) for one in beside]) for k, *beside in work]


def test_what_a_worker_has_is_not_sent_again(engine):
    one, two = np.arange(1000.0), np.ones(1000)
    for work in (tasks(one, two), tasks(two, one), tasks(one.copy())):
        assert engine.run(total, work, told) == plain(work)
    assert min(engine.sent[0]) > 8000
    assert max(*engine.sent[1], *engine.sent[2]) < 1000


def test_an_array_that_changes_in_place_is_another_one(engine):
    one = np.zeros(1000)
    for value in (1.0, 2.0):
        one[700] = value
        assert engine.run(total, tasks(one), told) == plain(tasks(one))
    assert engine.sent[1][0] < 1000 < engine.sent[1][1]  # only the second task has other numbers


def test_the_same_bits_of_another_type_are_another_array(engine):
    for one in (np.zeros(1000), np.zeros(1000, np.int64)):
        assert engine.run(total, tasks(one), told) == plain(tasks(one))


def test_a_worker_that_lost_its_arrays_is_sent_them_again(engine):
    work = tasks(np.arange(1000.0))
    engine.run(total, work, told)
    del parcels._SHELVES[engine._owner][1]  # as where another process took its place
    assert engine.run(total, work, told) == plain(work)
    (_, small, again) = engine.sent
    assert max(*small, 10 * again[0]) < 1000
    assert again[1] > 4000
    Here().run(total, work, told)  # workers keep the arrays of one engine
    assert engine.run(total, work, told) == plain(work)


def test_arrays_that_no_pass_asks_for_are_let_go(engine):
    for k in range(9):
        engine.run(total, tasks(np.full(1000, float(k))), told)
    assert {len(one) for one in parcels._SHELVES[engine._owner].values()} == {parcels._MOST}
    assert {len(one) for one in engine._sent.values()} == {parcels._MOST}


class Beside(Here):
    """Workers that share the memory of their caller."""

    def pass_on(self, tasks, told=lambda done: None):
        return [alone(*task) for task in tasks]


def test_what_a_caller_changes_later_is_not_what_a_worker_in_his_memory_has():
    engine, one = Beside(), np.zeros(1000)
    for value in (1.0, 2.0):
        one[:] = value
        assert engine.run(total, tasks(one), told) == plain(tasks(one))
    assert one.flags.writeable
    first = np.ones(1000)
    assert engine.run(total, tasks(first), told) == plain(tasks(first))
    parcels._SHELVES.clear()


def test_objects_are_no_bytes_to_know_them_by(engine):
    one = np.empty(1, object)
    one[0] = [1]
    for _ in range(2):
        assert engine.run(len_of_first, [(one,)], told) == [len(one[0])]
        one[0].append(2)


def len_of_first(cells):
    return len(cells[0])


def test_parts_of_a_whole_that_cannot_change_are_read_once(monkeypatch):
    whole = np.arange(1000.0)
    name = contents_name(whole[:10])
    whole[3] = 7.0
    assert contents_name(whole[:10]) != name
    assert contents_name(whole[:10]) == contents_name(np.array(whole[:10]))
    constant(whole)
    name, parts = (
        contents_name(whole[:10]),
        [contents_name(whole[begin : begin + 10 : 2]) for begin in range(9)],
    )
    assert len({name, *parts}) == 10
    monkeypatch.setattr(contents, "_told", None)
    assert contents_name(whole[:10]) == name
    key = id(whole)
    assert key in contents._NAMES
    del whole  # its place may be another array's soon
    assert key not in contents._NAMES


@pytest.mark.parametrize("frozen", ["view", "whole"])
def test_what_is_read_only_for_some_is_read_again(frozen):
    whole = np.arange(10.0)
    view, other = whole[:], whole[:]
    {"view": view, "whole": whole}[frozen].flags.writeable = False
    name = contents_name(view)
    other[3] = 7.0  # a view of before may still write
    assert contents_name(view) != name
