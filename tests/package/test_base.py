"""The base alone: a client, a planner, an audit and a command line without the libraries of any extra."""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from baseenvironment import PACKAGE, BaseEnvironment, closure
from onoff.extras import MODULES, need
from onoff.model.chain import Chain
from recordingserver import RecordingServer, reply

ROOT = Path(__file__).parents[2]
CHAIN = ROOT / "examples" / "reader.csv"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
FOR_USERS = ("server", "logs", "plots", "redis", "dask", "spark", "fast", "all")
MOST_BYTES = 430_000_000
MODES = ("--delay", "0.5")  # a loaded machine draws slowly


@pytest.fixture(scope="module")
def base():
    """On the disk, where its files can be links."""
    with tempfile.TemporaryDirectory() as directory:
        yield BaseEnvironment(Path(directory))


@pytest.fixture(scope="module")
def plans(base, tmp_path_factory):
    """A directory in which the base has made plans for the reader."""
    directory = tmp_path_factory.mktemp("planned")
    done = base.onoff("plan", CHAIN, "--lags", "1", "--out", "plans", cwd=directory)
    assert done.returncode == 0, done.stderr
    return directory / "plans"


def test_the_base_sees_no_library_of_an_extra(base):
    modules = sorted({name for names in MODULES.values() for name in names})
    code = f"from importlib.util import find_spec; print([name for name in {modules} if find_spec(name)])"
    assert base.run_python(code).stdout.strip() == "[]"
    assert base.run_python("import sys; print(sys.path)").stdout.count("site-packages") == 1


def test_the_base_weighs_at_most_430_megabytes(base):
    assert 100_000_000 < base.size() <= MOST_BYTES  # far less would mean that something was not linked


def test_a_plan_that_the_base_made_is_proved_by_its_audit(base, plans):
    done = base.onoff("audit", "plan", CHAIN, plans, cwd=plans.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(".plan.json: verified\n") == 1, done.stdout


def test_get_play_and_status_work_in_the_base(base, plans, tmp_path):
    names = Chain.load(CHAIN).names
    (tmp_path / "requests").write_text("on health\noff sports\noff world\non culture\n")
    with RecordingServer(lambda request: reply(f"page of {request.path[1:]}".encode())) as server:
        (tmp_path / "urls.json").write_text(json.dumps({name: f"{server.url}/{name}" for name in names}))
        kept = ("--journal", "journal", "--plans", plans)
        first = base.onoff(
            "get", "politics", "--next", "health", "--on", "--urls", "urls.json", "--chain", CHAIN, *MODES, *kept,
            cwd=tmp_path,
        )  # fmt: skip
        assert (first.returncode, first.stdout) == (0, "page of politics"), first.stderr
        played = base.onoff("play", "requests", "--out", "got", *kept, cwd=tmp_path)
        assert played.returncode == 0, played.stderr
        got = [file.read_text() for file in sorted((tmp_path / "got").iterdir())]
        assert got == [f"page of {name}" for name in ("health", "sports", "world", "culture")]
    status = base.onoff("status", *kept, cwd=tmp_path)
    assert status.returncode == 0, status.stderr
    assert "steps finished: 5" in status.stdout
    assert "(optimal" in status.stdout  # the plan that the base made is the one in use


COMMANDS = {
    "serve --source a --source b": "server",
    "demo": "server",
    f"check {ROOT}/examples/clicks.csv --chain {CHAIN}": "logs",
    f"fit {ROOT}/examples/clicks.csv -o chain.json": "logs",
    f"fit {ROOT}/examples/clicks.csv -o chain.json --spark local[*]": "spark",
    f"costs {CHAIN} --lags 1 --plot costs.png": "plots",
    "reproduce --out figures": "plots",
    f"plan {CHAIN} --lags 1 --out plans --dask tcp://127.0.0.1:1": "dask",
}


@pytest.mark.parametrize(
    "command",
    [pytest.param(command, marks=pytest.mark.long if i else ()) for i, command in enumerate(COMMANDS)],
    ids=lambda command: command.replace(str(ROOT), ""),
)
def test_a_command_that_lacks_an_extra_says_in_one_line_which_to_install(base, tmp_path, command):
    done = base.onoff(*command.split(), cwd=tmp_path)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("onoff: error: ")
    assert line.endswith(f"pip install 'onoff-privacy[{COMMANDS[command]}]'")
    assert not done.stdout
    assert not [file for file in tmp_path.rglob("*") if file.is_file()], "it is said after the work, not before it"


def test_every_module_of_the_base_can_be_imported_and_every_public_name_be_had(base):
    code = """
import json, onoff, pkgutil
lacking = {}
for module in pkgutil.walk_packages(onoff.__path__, "onoff.", onerror=lambda name: None):
    if not module.name.endswith("__main__"):
        try:
            __import__(module.name)
        except ImportError as error:
            lacking[module.name] = error.name
assert all(getattr(onoff, name) for name in onoff.__all__)
print(json.dumps(lacking))
"""
    done = base.run_python(code)
    assert done.returncode == 0, done.stderr
    lacking = json.loads(done.stdout)
    assert set(lacking.values()) <= {name for names in MODULES.values() for name in names}
    outside = ("server", "apps.page", "apps.demo", "apps.proxy", "schemes.sinkhorn_compiled", "testing")
    outside = tuple(f"onoff.{name}" for name in outside)
    assert {name for name in lacking if not name.startswith(outside)} == set()
    assert {"onoff.server", "onoff.apps.page", "onoff.testing"} <= set(lacking)


@pytest.mark.parametrize("extra", MODULES)
def test_the_modules_of_an_extra_are_those_that_its_distributions_bring(extra):
    need(extra, "the test")  # raises nothing: all extras are installed here
    brings = packages_distributions()
    brought = closure(f"{PACKAGE}[{extra}]").keys() - closure(PACKAGE).keys()
    own = {canonicalize_name(Requirement(line).name) for line in EXTRAS[extra]} - {PACKAGE}
    for module in MODULES[extra]:
        assert {canonicalize_name(name) for name in brings[module]} <= brought
    if extra != "spark":  # which repeats what `logs` brings
        found = {canonicalize_name(name) for module in MODULES[extra] for name in brings[module]}
        assert found == own - {"uvloop"}  # which the server can do without


def test_no_extra_asks_for_a_library_that_cannot_be_had_or_does_not_work_yet():
    server, [logs] = map(Requirement, EXTRAS["server"]), map(Requirement, EXTRAS["logs"])
    [uvloop] = [found for found in server if found.name == "uvloop"]
    assert not uvloop.marker.evaluate({"platform_python_implementation": "PyPy"})
    assert logs.specifier.contains("1.5.0")
    assert not logs.specifier.contains("2.0.0")  # its Ctrl-C does not stop a long query


def test_all_has_every_extra_for_users_and_the_documents_list_them():
    [everything] = map(Requirement, EXTRAS["all"])
    assert everything.extras == set(FOR_USERS) - {"all"}
    assert set(EXTRAS) == {*FOR_USERS, "testing", "dev"}
    text = (ROOT / "docs" / "how-to" / "install.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", text, flags=re.M)
    assert sorted(listed) == sorted([*FOR_USERS, "testing"])
    mentioned = re.findall(r"(?:onoff-privacy|\.)\[([\w,]+)\]", text + (ROOT / "README.md").read_text())
    assert {name for names in mentioned for name in names.split(",")} <= set(EXTRAS)
