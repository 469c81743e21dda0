"""Scores before any noise: of every record, and what their sums estimate."""

import numpy as np


def scores(score, records, released):
    """The score (n,) of all n records less its center."""
    own = score.at(records, released)
    return np.concatenate(records.blocks.map(lambda block: own.score(own.parts(block, released))))


def estimated(score, records, released):
    """What the sums estimate: the mean of the score over that of what records count."""
    own = score.at(records, released)
    parts, counts = own.parts(records, released), records.counts
    return np.sum(counts * own.score(parts)) / np.sum(counts * own.mass(parts)) + own.center
