"""Setting up: what the Makefile installs when."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLD, LATER, LATEST = 1_000_000_000, 1_000_000_100, 1_000_000_200
FILES = ("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "src/onoff/kept.py", "src/onoff/gone.py")
STAMPS = tuple(f".venv/{name}" for name in ("python", "installed", "runtime", "development"))


@pytest.fixture
def tree(tmp_path):
    """A tree of empty files in which everything was installed after they were written."""
    for name in (*FILES, *STAMPS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for path in tmp_path.rglob("*"):
        os.utime(path, (OLD, OLD))
    for name in STAMPS:
        os.utime(tmp_path / name, (LATER, LATER))
    return tmp_path


def would_run(tree, *targets):
    """The commands that make would run in the tree."""
    command = ["make", "--dry-run", "--no-print-directory", "--file", ROOT / "Makefile", *targets]
    return subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True).stdout.splitlines()


def pip_lines(tree, *targets):
    return [line for line in would_run(tree, *targets) if " pip " in f"{line} " and "-m pip" in line]


def test_what_is_installed_is_not_installed_again(tree):
    assert would_run(tree, "demo") == [".venv/bin/onoff demo"]
    assert pip_lines(tree, "demo", "page", "test", "check", "bench", "docs", "pictures") == []


def test_a_deleted_source_file_is_a_reason_to_build_the_wheel_again_and_nothing_else(tree):
    (tree / "src" / "onoff" / "gone.py").unlink()
    [built, installed] = pip_lines(tree, "test")
    assert " wheel --no-deps " in built
    assert " --no-deps --force-reinstall " in installed


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_changed_pin_is_a_reason_to_install_again(tree, name):
    os.utime(tree / name, (LATEST, LATEST))
    assert any("[server]" in line for line in pip_lines(tree, "demo"))
    assert any("[dev]" in line for line in pip_lines(tree, "test"))


def test_dependencies_are_built_in_isolation_and_at_the_pins(tree):
    """One without a wheel, such as PySpark, could otherwise be built only where pip has it in its cache."""
    shutil.rmtree(tree / ".venv")
    lines = pip_lines(tree, "test")
    assert len(lines) >= 4
    assert re.findall(r"\[(\w+)\]", "".join(pip_lines(tree, "demo", "page"))) == ["server"]
    for line in lines:
        assert "PIP_CONSTRAINT=constraints.txt" in line
        assert "--no-deps" in line or "--prefer-binary" in line
        assert "--no-deps" in line or "--no-build-isolation" not in line
    pins = (ROOT / "constraints.txt").read_text()
    assert re.search(r"^setuptools==", pins, flags=re.M)
    assert re.search(r"^wheel==", pins, flags=re.M)
