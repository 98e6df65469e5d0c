"""Disks that are full: a file system of a few pages where this process may mount one, a limit on files elsewhere."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE = 4096


class SmallDisk:
    """A directory that holds so many pages, until `grow` makes room."""

    def __init__(self, place: Path, mounted: bool) -> None:
        self.place, self.mounted = place, mounted

    def grow(self) -> None:
        if self.mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", str(self.place)], check=True, capture_output=True)


@contextmanager
def small_disk(place: Path, pages: int) -> Iterator[SmallDisk]:
    place.mkdir(parents=True)
    mounted = can_mount(place.parent)
    if mounted:
        command = ["mount", "-t", "tmpfs", "-o", f"size={pages * PAGE},nr_inodes=200", "onoff-test", str(place)]
        subprocess.run(command, check=True, capture_output=True)
    try:
        yield SmallDisk(place, mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


@functools.cache
def can_mount(directory: Path) -> bool:
    """Whether this process may mount a file system."""
    if os.geteuid() != 0:
        return False
    place = directory / "mount-probe"
    place.mkdir(exist_ok=True)
    tried = subprocess.run(["mount", "-t", "tmpfs", "onoff-test", str(place)], check=False, capture_output=True)
    if tried.returncode == 0:
        subprocess.run(["umount", str(place)], check=True, capture_output=True)
    place.rmdir()
    return tried.returncode == 0
