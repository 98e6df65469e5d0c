"""What the base and each extra weigh: packages and megabytes in site-packages, those of the base not counted twice."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import Distribution
from pathlib import Path

from common import show

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
from baseenvironment import PACKAGE, closure, library_files
from onoff.extras import MODULES

HEADINGS = ["what", "packages", "MB", "MB on disk", "the heaviest"]
HEAVY = 5  # of these, by size, the names are shown


def main() -> None:
    base = closure(PACKAGE)
    rows = [_row("base", base.values())]
    for extra in [*(name for name in MODULES if name != "testing"), "all"]:
        more = closure(f"{PACKAGE}[{extra}]")
        rows.append(_row(extra, [more[name] for name in more.keys() - base.keys()]))
    show("Packages and MB (10^6 bytes, with compiled files); an extra counts what it adds", HEADINGS, rows)


def _row(name: str, found: Iterable[Distribution]) -> list[object]:
    sizes = {one.metadata["Name"]: _bytes(one) for one in found}
    heaviest = sorted(sizes, key=lambda one: sizes[one][0], reverse=True)[:HEAVY]
    total, blocks = (sum(size[i] for size in sizes.values()) for i in (0, 1))
    return [name, len(sizes), f"{total / 1e6:.0f}", f"{blocks / 1e6:.0f}",
            ", ".join(f"{one} {sizes[one][0] / 1e6:.0f}" for one in heaviest)]  # fmt: skip


def _bytes(found: Distribution) -> tuple[int, int]:
    """The sizes of all its files, and the room that they take on this disk."""
    stats = [here.stat() for here, _ in library_files(found)]
    return sum(stat.st_size for stat in stats), sum(512 * stat.st_blocks for stat in stats)


if __name__ == "__main__":
    main()
