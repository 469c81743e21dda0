"""A tree on noisy cells: neighbors are told apart only where the noise lets them be. Post-processing."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.steps.partition import Box

#: A leaf has at least this many records, by its noisy count.
LEAST = 40.0
#: A split needs a gain above this: twice 1 is expected where two sides are alike, more of the best of many.
GAIN = 8.0


def grow(table: Array, spread: float, noise: float) -> list[Box]:
    """The leaves of a tree that is grown on noisy cells, greedily: boxes that partition the grid.

    Parameters
    ----------
    table
        Cells by covariate, then by arm, then P and Q, in records: (c_1, ..., c_k, 2, 2).
    spread
        Public guess of the standard deviation of one outcome in a cell, over the outcome bound.
    noise
        Variance of the noise of one entry, in squared records.

    A split gains the squared difference of both sides over its variance, of their outcomes less the arm means
    of the box, and of their shares of treated records. That variance counts sampling and noise. Every box is
    cut where most is gained, as long as that is more than ``GAIN`` with ``LEAST`` records on either side.
    """
    boxes, leaves = [tuple(slice(0, size) for size in table.shape[:-2])], []
    while boxes:
        box = boxes.pop()
        cut = _best_cut(table[box], spread, noise)
        if cut is None:
            leaves.append(box)
        else:
            axis, middle = cut[0], box[cut[0]].start + cut[1]
            for part in (slice(middle, box[axis].stop), slice(box[axis].start, middle)):
                boxes.append((*box[:axis], part, *box[axis + 1 :]))
    return leaves


def _best_cut(table: Array, spread: float, noise: float) -> tuple[int, int] | None:
    """The axis and the number of cells left of the best cut, None where nothing is gained."""
    best, found = GAIN, None
    axes = range(table.ndim - 2)
    for axis in axes:
        line = table.sum(axis=tuple(other for other in axes if other != axis))
        if len(line) < 2:
            continue
        gains = _gains(line, math.prod(table.shape[:-2]) / len(line), spread, noise)
        middle = int(np.argmax(gains))
        if gains[middle] > best:
            best, found = float(gains[middle]), (axis, middle + 1)
    return found


def _gains(line: Array, depth: float, spread: float, noise: float) -> Array:
    """The gain (w - 1,) of every cut of a line (w, 2, 2) whose entries add up ``depth`` cells each."""
    total = line.sum(axis=0)
    arms = np.maximum(total.sum(axis=1), 1.0)
    means = np.clip((total[:, 0] - total[:, 1]) / arms, -1.0, 1.0)
    share = float(np.clip(arms[1] / arms.sum(), 0.05, 0.95))
    left = np.cumsum(line, axis=0)[:-1]
    cells = depth * np.arange(1, len(line))
    differences, variances = np.zeros((2, len(left))), np.zeros((2, len(left)))
    enough = np.ones(len(left), dtype=bool)
    for sign, side, size in ((1.0, left, cells), (-1.0, total - left, depth * len(line) - cells)):
        arm = side.sum(axis=2)
        count = arm.sum(axis=1)
        enough &= count >= LEAST
        # a count below its own noise says nothing
        count = np.maximum(count, 4.0 * np.sqrt(noise * size))
        outcome = (side[:, :, 0] - side[:, :, 1] - means * arm).sum(axis=1)
        treated = arm[:, 1] - share * arm.sum(axis=1)
        differences += sign * np.stack([outcome, treated]) / count
        variances += np.stack(
            [
                spread**2 / count + 2.0 * noise * size * (2.0 + float(np.sum(means**2))) / count**2,
                share * (1.0 - share) / count
                + 2.0 * noise * size * (share**2 + (1.0 - share) ** 2) / count**2,
            ]
        )
    gains: Array = np.where(enough, np.sum(differences**2 / np.maximum(variances, 1e-200), axis=0), 0.0)
    return gains
