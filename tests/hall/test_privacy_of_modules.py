"""No module reaches into the private names of another."""

import ast
from pathlib import Path

import pytest

import onoff

ROOT = Path(onoff.__file__).parent
STANDARD = {"_asdict", "_replace", "_fields", "_make"}  # public names of named tuples


def is_private(name):
    return name.startswith("_") and not name.endswith("__") and name != "_" and name not in STANDARD


def own_names(tree):
    """What a module defines: functions, classes, variables, attributes that it sets, fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "object.__setattr__":
            yield ast.literal_eval(node.args[1])


def bases_of_others(tree):
    """Classes that derive from a class of a library: they may use its protected names."""
    imported = {
        alias.asname or alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and not ast.unparse(node).split()[1].startswith("onoff")
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).split(".")[0] in imported for base in node.bases):
            yield node


def intrusions(source):
    """Private names that a module uses and does not own: (line, name)."""
    tree = ast.parse(source)
    own = set(own_names(tree))
    allowed = {
        id(node)
        for kind in bases_of_others(tree)
        for node in ast.walk(kind)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and is_private(node.attr)
            and node.attr not in own
            and id(node) not in allowed
        ):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names if is_private(alias.name))


def test_no_module_uses_a_private_name_of_another():
    found = {
        f"{file.relative_to(ROOT)}:{line}": name
        for file in sorted(ROOT.rglob("*.py"))
        for line, name in intrusions(file.read_text())
    }
    assert found == {}


@pytest.mark.parametrize(
    "planted",
    [
        "from onoff.plans.file import _plan",
        "import onoff.plans.file as f\nf._plan({})",
        "from onoff.plans.planner import Planner\nclass Mine(Planner):\n    def x(self):\n        return self._loaded",
        "def first(planner):\n    return planner._first",
    ],
)
def test_a_planted_intrusion_is_seen(planted):
    assert len(list(intrusions(planted))) == 1


def test_what_a_module_owns_it_may_use():
    owned = (
        "class A:\n    def __init__(self):\n        self._x = 1\ndef f(a):\n    return a._x, a.__dict__, a._asdict()"
    )
    assert list(intrusions(owned)) == []
