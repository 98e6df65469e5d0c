"""An environment of the base alone: what `pip install onoff-privacy` would bring, and nothing else.

The distributions are those that the installed wheel asks for without an extra, and those that they ask for; their files
are linked (copied where that is not possible) from the running environment into a new one. That takes seconds and no
registry, and is what pip would make: it installs the same closure at the same pins.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PACKAGE = "onoff-privacy"


def closure(requirement: str) -> dict[str, Distribution]:
    """All distributions that a requirement such as `onoff-privacy[server]` brings, by canonical name."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(requirement)]
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        for extra in ("", *asked.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                found.setdefault(name, distribution(name))
                needs = map(Requirement, found[name].requires or ())
                waiting += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
    return found


def library_files(found: Distribution) -> list[tuple[Path, Path]]:
    """The files of a distribution that lie in site-packages, each with its place there; commands lie elsewhere."""
    root = Path(str(found.locate_file(""))).resolve()
    files = [(Path(str(file.locate())).resolve(), Path(file)) for file in found.files or ()]
    return [(here, place) for here, place in files if here.is_relative_to(root) and here.exists()]


class BaseEnvironment:
    """A virtual environment in `directory` that cannot see the running one."""

    def __init__(self, directory: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
        self.python = directory / "bin" / "python"
        self.packages = Path(self.run_python("import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
        assert self.packages.is_relative_to(directory.resolve())
        for found in closure(PACKAGE).values():
            for here, place in library_files(found):
                _linked(here, self.packages / place)

    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.packages.rglob("*") if file.is_file())

    def run_python(self, code: str) -> subprocess.CompletedProcess[str]:
        return self._run("-c", code)

    def onoff(self, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
        return self._run("-m", "onoff", *map(str, words), cwd=cwd)

    def _run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        return subprocess.run(
            [self.python, "-P", *words], cwd=cwd, env={**clean, "PYTHONNOUSERSITE": "1"}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip


def _linked(here: Path, there: Path) -> None:
    there.parent.mkdir(parents=True, exist_ok=True)
    try:
        there.hardlink_to(here)
    except OSError:  # another file system
        shutil.copy2(here, there)
