"""The picture of the package's rooms and of what each imports: ``python rooms.py``, in seconds.

A room is a folder of ``dp2erm_cvx``, or a module beside the folders. A room stands above every room
that it imports. An arrow is drawn from a room to one that it imports, unless a way through other
rooms says so.
"""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from dp2erm_cvx.report.figures import BLUE, new_figure, save

ROOT = Path(__file__).parents[1]
PACKAGE = "dp2erm_cvx"
STATIC = Path(__file__).parent / "_static"
#: Rooms that are colored: the way of a study from its file to its page.
WAY = ("study", "estimators", "plan", "steps", "release", "report")
Imports = dict[str, set[str]]


def room_of(path: Path) -> str:
    """The room of a file: ``solve`` for dp2erm_cvx/solve/solving.py.

    A file beside the folders is its own room, and the programs are ``problems``.
    """
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == PACKAGE:
        return parts[1]
    return parts[0]


def imported_by(source: str) -> set[str]:
    """Names of modules of this package that a source imports, without the package's own name."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            full = (
                [node.module]
                if node.module != PACKAGE
                else [f"{PACKAGE}.{a.name}" for a in node.names]
            )
        elif isinstance(node, ast.Import):
            full = [alias.name for alias in node.names]
        else:
            continue
        found.update(name.partition(".")[2] for name in full if name.startswith(f"{PACKAGE}."))
    return found


def imports_of_rooms() -> Imports:
    """What every room imports, itself left out. The package's ``__init__`` is no room."""
    rooms: Imports = {}
    for folder in (PACKAGE, "problems"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            room = room_of(path)
            if room == "__init__":
                continue
            imported = {
                name.split(".")[0] for name in imported_by(path.read_text(encoding="utf-8"))
            }
            rooms.setdefault(room, set()).update(imported)
    for room, imported in rooms.items():
        imported &= rooms.keys() - {room}
    return rooms


def below(rooms: Imports, room: str) -> set[str]:
    """All rooms that a room imports, directly or through others."""
    found: set[str] = set()
    open_rooms = [room]
    while open_rooms:
        for one in rooms[open_rooms.pop()] - found:
            found.add(one)
            open_rooms.append(one)
    return found


def levels(rooms: Imports) -> dict[str, int]:
    """The level of every room.

    0 imports nothing; the others stand one above the highest that they import.

    Raises ValueError where rooms import each other.
    """
    circle = sorted(room for room in rooms if room in below(rooms, room))
    if circle:
        raise ValueError(f"rooms that import each other: {', '.join(circle)}")
    found: dict[str, int] = {}
    for room in sorted(rooms, key=lambda one: len(below(rooms, one))):
        found[room] = 1 + max((found[one] for one in rooms[room]), default=-1)
    return found


def arrows(rooms: Imports) -> list[tuple[str, str]]:
    """Imports that no way through other rooms says already."""
    drawn = []
    for room, imported in rooms.items():
        through = set().union(*(below(rooms, one) for one in imported))
        drawn += [(room, one) for one in sorted(imported - through)]
    return drawn


def places(rooms: Imports) -> dict[str, tuple[float, float]]:
    """The middle of every room's box.

    A room stands near the middle of the rooms that it imports.
    """
    level = levels(rooms)
    placed: dict[str, tuple[float, float]] = {}
    for height in range(max(level.values()) + 1):
        middles = {}
        for room in rooms:
            if level[room] == height:
                beneath = [placed[one][0] for one in rooms[room] if level[one] >= height - 2]
                middles[room] = sum(beneath) / max(1, len(beneath))
        row = sorted(middles, key=lambda room: middles[room])
        for position, room in enumerate(row):
            placed[room] = (position - (len(row) - 1) / 2, float(height))
    return placed


def picture(rooms: Imports) -> Figure:
    """Draw boxes from below to above in the order of imports.

    Boxes and arrows carry names as identifiers.
    """
    placed = places(rooms)
    height = max(y for _, y in placed.values())
    figure = new_figure(7.6, 0.62 * (height + 1.6))
    axes = figure.subplots()
    for room, imported in arrows(rooms):
        (x, y), (under_x, under_y) = placed[room], placed[imported]
        arrow = {"arrowstyle": "-|>", "color": "0.6", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 0}
        arrow["connectionstyle"] = "arc3,rad=0.12" if y - under_y > 1 else "arc3"
        drawn = axes.annotate(
            "", (under_x, under_y + 0.24), (x, y - 0.24), arrowprops=arrow, zorder=1
        )
        drawn.arrow_patch.set_gid(f"{room}-imports-{imported}")
    for room, (x, y) in placed.items():
        color = BLUE if room in WAY else "0.35"
        box = FancyBboxPatch(
            (x - 0.36, y - 0.16),
            0.72,
            0.32,
            boxstyle="round,pad=0.06",
            facecolor="white",
            edgecolor=color,
            linewidth=1.8 if room in WAY else 0.9,
            zorder=2,
        )
        box.set_gid(f"room-{room}")
        axes.add_patch(box)
        axes.text(x, y, room, ha="center", va="center", fontsize=8, color=color, zorder=3)
    reach = max(abs(x) for x, _ in placed.values()) + 0.6
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-0.5, height + 0.5)
    axes.set_axis_off()
    return figure


def main() -> None:
    """Draw the picture of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=STATIC, help="where the picture goes")
    folder = parser.parse_args().folder
    rooms = imports_of_rooms()
    save(picture(rooms), folder / "rooms.svg")
    for room, level in sorted(levels(rooms).items(), key=lambda one: one[1]):
        print(f"{level:3d} {room:14s} {', '.join(sorted(rooms[room]))}")


if __name__ == "__main__":
    main()
