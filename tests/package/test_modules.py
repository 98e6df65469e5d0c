"""The modules of the package: they import one another in one direction, and name no file that the wheel lacks."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import onoff

PLACE = Path(onoff.__file__).parent
FILES = {".".join(("onoff", *file.relative_to(PLACE).with_suffix("").parts)): file for file in PLACE.rglob("*.py")}
TREES = {name.removesuffix(".__init__"): ast.parse(file.read_text()) for name, file in FILES.items()}


def imported(name, tree):
    """The modules that a module needs before it is whole: imports in functions and for types come later."""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"{name}: imports are absolute"
            names = [f"{statement.module}.{alias.name}" for alias in statement.names]
            yield from (full if full in TREES else statement.module for full in names)


def test_no_module_needs_itself_to_be_imported():
    needs = {name: {other for other in imported(name, tree) if other in TREES} for name, tree in TREES.items()}
    assert len(needs) > 100
    assert "onoff.wire" in needs["onoff.server.app"]
    TopologicalSorter(needs).prepare()  # CycleError names a cycle


def test_no_text_names_a_file_that_the_wheel_lacks():
    """Documents and examples are in the repository only."""
    texts = [
        (name, node.value)
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert [(name, text) for name, text in texts if re.search(r"\b(docs|examples)/|\.md\b", text)] == []
