"""The optional packages behind noise whose guarantee covers the computer."""

from __future__ import annotations

from importlib.util import find_spec

from dp2erm_cvx.errors import DeclarationError

#: Import name to distribution name: ball arithmetic, and the discrete mechanism on a grid.
_PACKAGES = {"flint": "python-flint", "opendp": "opendp"}


def secure_available() -> bool:
    """Whether both packages of the extra ``secure`` are installed. Neither is imported."""
    return all(find_spec(name) is not None for name in _PACKAGES)


def require(name: str) -> None:
    """Raise DeclarationError unless the package of import name ``name`` is installed."""
    if find_spec(name) is None:
        raise DeclarationError(
            f"noise with a proven error needs {_PACKAGES[name]}: install dp2erm-cvx[secure]"
        )
