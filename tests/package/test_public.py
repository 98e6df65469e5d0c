"""The public names. A change here is a change of the API: once a version is released, announce it in CHANGELOG.md."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

import onoff
from clikit import ONOFF, call
from ports import free_port

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()

PUBLIC = {
    "Bounds", "Chain", "Client", "Fit", "HttpTransport", "Message", "OnoffError", "OnoffTransport", "Plan", "Planner",
    "Posterior", "Settings", "bounds", "connect", "connect_sync", "errors", "fit", "follows",
    "httpx_transport", "plan",
}  # fmt: skip


def test_the_public_names_are_the_announced_ones_and_can_be_had():
    assert set(onoff.__all__) == PUBLIC
    assert set(dir(onoff)) == PUBLIC | {"__version__"}
    assert [getattr(onoff, name).__name__.removeprefix("onoff.") for name in sorted(PUBLIC)] == sorted(PUBLIC)


def test_no_module_imports_a_private_name_of_another():
    """`make check` sees the other ways to reach one (SLF001)."""
    for file in Path(onoff.__file__).parent.rglob("*.py"):
        found = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        names = [alias.name for node in found if (node.module or "").startswith("onoff") for alias in node.names]
        assert not [name for name in names if name.startswith("_")], file


def test_the_tests_run_on_the_installed_wheel_not_on_the_tree():
    assert "site-packages" in onoff.__file__


def test_importing_the_package_and_the_command_line_loads_no_numerical_library():
    heavy = {"numpy", "scipy", "matplotlib", "duckdb"}
    code = f"import onoff, onoff.apps.cli.app, sys; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def readme_commands(tmp_path_factory):
    """The commands of the README, run one after the other in a copy of the examples; the server goes on meanwhile."""
    directory = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", directory / "examples")
    port = str(free_port())
    commands = re.findall(r"^    onoff ([^#&\n]*)", README, flags=re.M)
    example = README.split("```python\n")[1].split("```")[0]
    url, outputs = f"http://127.0.0.1:{port}", {}
    with ExitStack() as stack:
        for command in commands:
            words = command.replace("8700", port).split()
            if words[0] == "serve":
                server = subprocess.Popen([ONOFF, *words], cwd=directory, stdout=subprocess.PIPE, text=True)
                stack.callback(server.communicate, timeout=180)
                stack.callback(server.terminate)
                assert json.loads(server.stdout.readline())["event"] == "ready"
                while not httpx.get(f"{url}/health", timeout=180).json()["round"]:  # the files have not been read yet
                    time.sleep(0.02)
                code = example.replace("http://127.0.0.1:8700", url)
                run = subprocess.run([sys.executable, "-c", code], check=True, stdout=-1, text=True, cwd=directory)
            else:
                outputs[command.strip()] = call(*words, cwd=directory, check=True)
        yield outputs, run.stdout.splitlines()


def test_the_commands_of_the_readme_run(readme_commands):
    outputs, _ = readme_commands
    [log] = [done.stdout for command, done in outputs.items() if command.startswith("audit log")]
    assert log.splitlines()[-1].startswith("AUDIT PASSED")
    [streams] = [done.stdout for command, done in outputs.items() if command.startswith("audit streams")]
    assert "1.1838" in streams, "the README says 1.2 bits"


def test_the_example_in_the_readme_says_what_is_shown_but_for_the_random_sets(readme_commands):
    _, said = readme_commands
    shown = [line.removeprefix("    ") for line in README.splitlines() if re.match(r"    (ON |OFF) \w", line)]
    assert said[0] == shown[0]
    assert [line.split()[:2] for line in said] == [line.split()[:2] for line in shown]
    everything, four, *_ = ({*line.split()[4:]} for line in shown)
    assert {*said[1].split()[4:]} in ({"technology"}, four, everything)
