"""What a registry of deployments asks that no release knows."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass

from dp2erm_cvx.errors import DeclarationError, shown

#: What marks a field that is left to the deployer.
BLANK = "TODO: "


@dataclass(frozen=True)
class Asked:
    """A field that no release knows: what to say there, and the answers that the registry takes."""

    what: str
    known: tuple[str, ...] = ()
    check: Callable[[str], bool] = str.isprintable

    def answer(self, name: str, given: str | None) -> str:
        """What is given, or the mark of a blank. Raises DeclarationError for what the registry refuses."""
        if given is None:
            return BLANK + self.what + (f" ({', '.join(self.known)})" if self.known else "")
        if (self.known and given not in self.known) or not given or not self.check(given):
            expected = f"one of {', '.join(self.known)}" if self.known else self.what
            raise DeclarationError(f"{name} = {shown(given)}: must be {expected}")
        return given


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


#: What only the deployer knows, by the name of the field in the registry.
ASKED = {
    "url_slug": Asked("a short name for the address", check=lambda text: bool(re.fullmatch(r"[\w-]+", text))),
    "name": Asked("the name of the data product"),
    "data_curator_name": Asked("who publishes it"),
    "data_curator_type": Asked("what the publisher is", ("Government", "Industry", "Nonprofit")),
    "intended_use": Asked("what it is for"),
    "data_product_region": Asked("the region that the data describe, or whose law applies"),
    "data_product_sector": Asked(
        "the sector", ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
    ),
    "publication_date": Asked("the day of publication as YYYY-MM-DD", check=_is_date),
    "privacy_unit": Asked("what one record is, such as a person, and that nobody has two"),
    "trust_assumptions": Asked("who may see the data or the release, and what they are trusted with"),
    "actors": Asked("who holds the data, who ran the release, who reads it"),
    "release_type_details": Asked("plans for other releases from these data: each of them adds to epsilon"),
    "data_source_type": Asked("whether records are added later", ("Static", "Dynamic")),
    "tuning": Asked("how ranges, bounds and epsilon were chosen, and whether the data were looked at"),
    "access_controls": Asked("how the records are secured, and who has access to them"),
    "justification": Asked("why this epsilon, this unit and these bounds"),
    "additional_information": Asked("where the release is, and the paper about it"),
    "registry_author": Asked("who fills in this record"),
}
