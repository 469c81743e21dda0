"""Pages of HTML that need no other file and no network, from the templates of this package."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.display import as_html
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

#: What pages of audits need; other pages draw by themselves.
PACKAGES = ("jinja2", "matplotlib")


def missing(packages: tuple[str, ...] = PACKAGES) -> list[str]:
    """Those of the ``packages`` of a page or record that are not installed."""
    return [name for name in packages if find_spec(name) is None]


def check_installed(packages: tuple[str, ...] = PACKAGES) -> None:
    """Raise DeclarationError unless the ``packages`` of a page or record are installed."""
    if gone := missing(packages):
        instead = ", or write JSON only (dp2erm audit --no-page)" if packages == PACKAGES else ""
        raise DeclarationError(f"this needs {' and '.join(gone)}: pip install 'dp2erm-cvx[reports]'{instead}")


def rendered(template: str, **facts: Any) -> str:
    """The page of a template: every text in ``facts`` is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("dp2erm_cvx.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def block(one: Block) -> Markup:
        return Markup(as_html([one]))  # which escapes every cell

    environment.filters.update(number=_number, block=block)
    return environment.get_template(template).render(**facts)


def _number(value: float) -> str:
    """A number for a table."""
    if math.isinf(value):
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
