"""How a CSV file is written."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from dp2erm_cvx.errors import DataError, DeclarationError, known_names, shown


@dataclass(frozen=True)
class CsvLayout:
    """How a CSV file is written: what separates cells, its encoding, and the decimal sign of numbers.

    Raises DeclarationError naming what no file can have.
    """

    separator: str = ","
    encoding: str = "utf-8"
    decimal: str = "."

    def __post_init__(self) -> None:
        if not isinstance(self.separator, str) or len(self.separator) != 1 or self.separator in '"\r\n':
            raise DeclarationError(f"csv: separator = {self.separator!r}: must be one character")
        try:
            codecs.lookup(self.encoding)
        except (LookupError, TypeError, ValueError):
            raise DeclarationError(
                f"csv: encoding = {self.encoding!r}: is not known; such as utf-8 or latin-1"
            ) from None
        if self.decimal not in (".", ",") or self.decimal == self.separator:
            raise DeclarationError(f"csv: decimal = {self.decimal!r}: must be . or , and not the separator")

    @property
    def codec(self) -> str:
        """The encoding, under which a mark of UTF-8 at the start of a file is no text."""
        return "utf-8-sig" if codecs.lookup(self.encoding).name == "utf-8" else self.encoding

    @classmethod
    def from_dict(cls, declared: object) -> CsvLayout:
        """Of a table ``[csv]``. Raises DeclarationError."""
        if not isinstance(declared, Mapping):
            raise DeclarationError(f"csv = {shown(declared)}: must be a table [csv]")
        known = [one.name for one in fields(cls)]
        for name in declared:
            if name not in known:
                raise DeclarationError(f"csv: unknown name {shown(name)}; {known_names(name, known)}")
        return cls(**declared)


def guessed_layout(path: str) -> CsvLayout:
    """How the file seems to be written, by all that is in it. Not private: for the data holder.

    A release takes nothing from here: how its file is written is declared. Raises DataError.
    """
    if path.lower().endswith((".parquet", ".pq")):
        return CsvLayout()
    try:
        raw = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        text, encoding = raw.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        text, encoding = raw.decode("latin-1"), "latin-1"
    separator = max(",;\t|", key=text.partition("\n")[0].count)
    cell = rf"(?<![^{re.escape(separator)}\n])-?\d+{{}}\d+(?![^{re.escape(separator)}\r\n])"
    commas, points = (len(re.findall(cell.format(sign), text)) for sign in (",", r"\."))
    return CsvLayout(separator, encoding, "," if separator != "," and commas > points else ".")


#: Commas, UTF-8 and decimal points.
PLAIN = CsvLayout()
