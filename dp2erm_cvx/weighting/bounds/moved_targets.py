"""How far a target that is a mean of records, or of an arm, moves with one record.

The target of record i moves by ``tau(d') - tau(d)``. The mean of an arm moves by ``1/n_a`` of that
where the record stays in it, and by the distance of one record from the mean of the others where it
comes or leaves (section "Targets" of ``docs/theory/weights_as_variable.md``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.weighting.bounds.diameters import RecordCombinations
from dp2erm_cvx.weighting.forms.arm_sizes import ArmSizes
from dp2erm_cvx.weighting.forms.form import WeightingForm


@dataclass(frozen=True)
class MovedTarget:
    """Minus the movement ``n(t' - t)`` of the target, as a combination of a few records.

    Parameters
    ----------
    arms
        Arm of the replaced record after and before.
    means
        Factors of both in the means of their arms.
    others
        Arms of further records, each of which stands for the mean of the common records of an arm.
    of_others
        Their factors.
    """

    arms: tuple[int, int]
    means: tuple[float, float] = (0.0, 0.0)
    others: tuple[int, ...] = ()
    of_others: tuple[float, ...] = ()

    def alone(self) -> RecordCombinations:
        """The movement of the target, of one case."""
        return self.beside(np.zeros((1, 2)), ())

    def beside(self, rows: Array, common: tuple[int, ...]) -> RecordCombinations:
        """The movement beside rows.

        Parameters
        ----------
        rows
            Factors (B, 2 + m) of the rows of the replaced record after and before, and of m common
            records.
        common
            Arms of the common records.

        Returns
        -------
        RecordCombinations
            B sums, of the replaced record after and before, the common records and the others.
        """
        cases = len(rows)
        nothing = np.zeros((cases, len(self.others)))
        in_common = [0.0 for _ in common]
        in_others = [0.0 for _ in self.others]
        targets = np.tile([-1.0, 1.0, *in_common, *in_others], (cases, 1))
        means = np.tile([*self.means, *in_common, *self.of_others], (cases, 1))
        arms = np.tile([*self.arms, *common, *self.others], (cases, 1))
        return RecordCombinations(np.hstack([rows, nothing]), targets, arms, means=means)


def moved_targets(
    form: WeightingForm, sizes: ArmSizes, before: int, after: int
) -> tuple[MovedTarget, ...]:
    """Movements of the target whose convex hull holds those of all pairs of datasets.

    Parameters
    ----------
    form
        The form; arms whose mean is a target have floors of at least 1.
    sizes
        Arm sizes of the universe.
    before, after
        Arm of the replaced record in both datasets.

    Returns
    -------
    tuple
        Movements at the ends of ``n / n_a``, which they are affine in.
    """
    if not form.arms_of_means:
        return (MovedTarget((after, before)),)
    if before == after:
        return _within_an_arm(form, sizes, before)
    return tuple(
        _between_arms(form, before, after, shares) for shares in _shares_at_a_change(form, sizes)
    )


def _within_an_arm(form: WeightingForm, sizes: ArmSizes, arm: int) -> tuple[MovedTarget, ...]:
    """A record that stays in its arm, which has as many records on both sides."""
    if arm not in form.arms_of_means:
        return (MovedTarget((arm, arm)),)
    ends = {form.n / sizes.most(arm), form.n / sizes.least(arm)}
    return tuple(MovedTarget((arm, arm), (-share, share)) for share in sorted(ends))


def _shares_at_a_change(form: WeightingForm, sizes: ArmSizes) -> list[tuple[float, float]]:
    """Corners of ``n / N_a`` by arm, N_a the larger of the two numbers of records of an arm.

    Where a record changes its arm ``N_0 + N_1 = n + 1``. The curve of both shares lies below its
    chord, so that its ends and the least of both shares have it in their hull.
    """
    least = [form.n / sizes.most(arm) for arm in (0, 1)]
    largest = [form.n / (sizes.least(arm) + 1.0) for arm in (0, 1)]
    return [(largest[0], least[1]), (least[0], largest[1]), (least[0], least[1])]


def _between_arms(
    form: WeightingForm, before: int, after: int, shares: tuple[float, float]
) -> MovedTarget:
    """A record that leaves one arm and comes to the other one."""
    means = [0.0, 0.0]
    others = []
    of_others = []
    for place, arm, sign in ((0, after, 1.0), (1, before, -1.0)):
        if arm in form.arms_of_means:
            means[place] = -sign * shares[arm]
            others.append(arm)
            of_others.append(sign * shares[arm])
    return MovedTarget((after, before), (means[0], means[1]), tuple(others), tuple(of_others))
