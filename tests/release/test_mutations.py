"""Every entry of a release is changed in turn: what follows from others is refuted, by its path."""

import copy
import json
from fnmatch import fnmatch

import pytest

from dp2erm_cvx import read_release
from dp2erm_cvx.errors import DeclarationError, Dp2ermError
from dp2erm_cvx.release.reading import parsed
from dp2erm_cvx.release.verify import verify
from tests.every_release import RELEASES, WIDE, release_of

FAST = ("trial", "balancing")
SLOW = [name for name, model in RELEASES.items() if model.domain is not WIDE]

#: Noise was added to them: any number on its public grid may have been released. What follows is
#: refuted, unless nothing does, as from the slope of a regression.
RELEASED = [
    "released*",
    "nuisances.0",
    "nuisances.*.coefficient*",
    "theta*",
    "ranges.*.low",
    "ranges.*.high",
]
#: Declarations are what all else is computed from. A reader compares them with the domain that is
#: expected.
DECLARED = [
    *(
        "n_samples",
        "columns",
        "columns.*",
        "guarantee.epsilon",
        "guarantee.delta",
        "domain.*",
        "declared.*",
    ),
    *("ranges.*.within*", "ranges.*.column", "ranges.*.released", "study", "version", "target"),
]
#: Of these some have to be refuted in every release, although they are released or declared.
TELLING = {
    "trial": (
        "released.0 settings.effect_center settings.score_bound domain.outcome_bound n_samples"
    ),
    "rule and value": "released.0 theta.0 settings.slope n_samples",
    "balancing": "theta.0 domain.covariate_bound domain.outcome_bound",
}


def parts(tree, path=()):
    """Everything in a tree, by path."""
    yield path, tree
    inner = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for name, part in inner:
        yield from parts(part, (*path, name))


def put(tree, path, value):
    result = copy.deepcopy(tree)
    place = result
    for name in path[:-1]:
        place = place[name]
    if value is parts:  # nothing at all
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return result


def changes(tree):
    """Every change of one entry, with its path."""
    for path, part in parts(tree):
        if isinstance(part, dict):
            yield (*path, "extra"), put(tree, (*path, "extra"), 1.0)
        values = [None, parts] if path else []
        if isinstance(part, list):
            values.append([*part, *part[-1:]])
        elif isinstance(part, str):
            values.append(part + " x")
        elif isinstance(part, bool):
            values.append(not part)
        elif isinstance(part, int | float):
            values += [part * 3 // 2 if isinstance(part, int) else part * 1.5, part + 1]
        elif part is None:
            values.append(0.5)
        yield from ((path, put(tree, path, value)) for value in values)


def among(path, names):
    return any(fnmatch(path, name) for name in names)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("name", "step"),
    [*((one, 6) for one in FAST), *(pytest.param(one, 1, marks=pytest.mark.slow) for one in SLOW)],
)
def test_every_change_is_refuted_by_name(name, step):
    """Of every ``step``-th entry, and of all that have to be refuted."""
    release = release_of(name)
    telling, passed, unnamed = set(TELLING.get(name, "").split()), [], []
    plain, fields = json.loads(release.to_json()), json.dumps(release.to_dict(derived=False))
    for number, (path, tree) in enumerate(changes(plain)):
        place = ".".join(map(str, path))
        if number % step and place not in telling:
            continue
        try:
            changed = parsed(json.dumps(tree), type(release))
            if json.dumps(changed.to_dict(derived=False)) == fields:
                if path[0] in release.derived and tree.get(path[0]) not in (None, plain[path[0]]):
                    with pytest.raises(DeclarationError, match=f"{path[0]} does not follow"):
                        read_release(json.dumps(tree), type(release))
                continue  # an entry left out that has this default
            result = verify(changed)
        except Dp2ermError:  # the reader, or the plan, refused it
            telling.discard(place)
            continue
        prefix = "nothing follows from what is declared: "
        names = [line.removeprefix(prefix).split(":")[0] for line in result.refuted]
        if result.refuted:
            telling.discard(place)
            known = any(place.startswith(one) or one.startswith(place) for one in names)
            if not known and not among(place, RELEASED + DECLARED):
                unnamed.append((place, names))
        elif not among(place, RELEASED + DECLARED):
            passed.append(place)
    assert not passed
    assert not unnamed
    assert not telling
