"""A fingerprint of the code, by which a folder knows what its cells were computed with."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

#: Code and embedded data. A design, in TOML, has a digest of its own.
_COUNTED = {".py", ".csv"}


@functools.cache
def code_digest() -> str:
    """That of the code and data of the package and of its programs, wherever they are installed."""
    roots = []
    # in a checkout the programs are a folder beside the package, else one inside it
    for name in ("dp2erm_cvx", "dp2erm_cvx.problems"):
        spec = find_spec(name)
        places = spec.submodule_search_locations if spec is not None else None
        roots += [(name.replace(".", "/"), Path(place)) for place in places or ()]
    return digest_of(roots)


def digest_of(roots: Iterable[tuple[str, Path]]) -> str:
    """One digest of the names and contents of code and data below folders that are known by a name."""
    found = {}
    for name, root in roots:
        for path in root.rglob("*"):
            if path.suffix in _COUNTED:
                found[f"{name}/{path.relative_to(root).as_posix()}"] = hashlib.sha256(path.read_bytes())
    lines = [f"{name} {content.hexdigest()}\n" for name, content in sorted(found.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
