"""The public names. A change here is a change of the API: announce it in CHANGELOG.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onoff

PUBLIC = {
    "Bounds",
    "Chain",
    "ChainError",
    "ContextError",
    "ExactPosterior",
    "NotUnique",
    "OnoffError",
    "Plan",
    "PlanError",
    "Planner",
    "Posterior",
    "RacePlan",
    "TablePlan",
    "bounds",
    "plan",
    "symmetric_inner",
    "symmetric_outer",
}


def test_the_public_names_are_the_announced_ones():
    assert set(onoff.__all__) == PUBLIC
    assert set(dir(onoff)) == PUBLIC | {"__version__"}


def test_every_public_name_can_be_had_and_is_in_the_changelog():
    changelog = (Path(__file__).parent.parent / "CHANGELOG.md").read_text()
    for name in PUBLIC:
        assert getattr(onoff, name).__name__ == name
        assert f"`{name}`" in changelog, f"{name} is public but not announced in CHANGELOG.md"


def test_no_module_hides_a_public_function():
    code = "import onoff, onoff.limits, onoff.symmetric, onoff.schemes.paper; assert callable(onoff.bounds)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(onoff, "no_such_name")


def test_the_tests_run_on_the_installed_wheel_not_on_the_tree():
    assert "site-packages" in onoff.__file__


def test_importing_the_package_and_the_command_line_loads_no_numerical_library():
    code = "import onoff, onoff.cli, sys; assert not {'numpy', 'scipy', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_example_in_the_readme_runs():
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    example = readme.split("```python\n")[1].split("```")[0]
    done = subprocess.run([sys.executable, "-c", example], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("everything 3, ")
