"""The documents: every snippet runs, every link and anchor leads somewhere, every test that is named exists."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from playwright.sync_api import sync_playwright

from onoff.apps.cli.app import app
from ports import free_port

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", flags=re.M | re.S)
LONG = ("tutorial", "costs")  # pages whose snippets take long
PORTS = ("8700", "8710", "8720")  # in the documents; free ones are used here
# The elements that reach beyond the right edge of the page, unless they are in something that scrolls.
WIDER = """() => [...document.querySelectorAll("article *")]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("pre, .formula"))
  .map(e => e.outerHTML.slice(0, 80))"""
LISTENING = "until (: < /dev/tcp/127.0.0.1/{port}) 2>&-; do sleep 0.1; done"


def script(text: str) -> str:
    """The snippets of a page as one shell script: console lines after `$ `, and Python through standard input."""
    lines = []
    for kind, body in BLOCK.findall(text):
        if kind == "python":
            lines += [f"{sys.executable} - <<'END_OF_SNIPPET'", body.rstrip(), "END_OF_SNIPPET"]
            continue
        commands = [line.removeprefix("$ ") for line in body.replace("\\\n", "").splitlines() if line.startswith("$ ")]
        assert commands, f"a console block without a `$ ` line: {body}"
        for command in commands:
            lines.append(command)
            if command.endswith("&"):  # a server
                [port] = [port for port in PORTS if port in command]
                lines.append(LISTENING.format(port=port))
    return "\n".join(lines)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.long if page.stem in LONG else ())
        for page in PAGES
        if BLOCK.search(page.read_text())
    ],
    ids=lambda page: page.stem,
)
def test_the_snippets_run(page, tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    ports = {port: str(free_port()) for port in PORTS}
    code = re.sub("|".join(PORTS), lambda found: ports[found[0]], script(page.read_text()))
    code = f"set -euo pipefail\ntrap 'kill $(jobs -p) 2>&- || true' EXIT\n{code}"
    home = {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", code], cwd=tmp_path, env={**os.environ, **home}, capture_output=True, text=True, timeout=1200,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_commands_that_are_only_shown_exist_with_their_options():
    shown, whole = 0, typer.main.get_command(app)
    for page in [*PAGES, *ROOT.glob("*.md")]:
        text = BLOCK.sub("", page.read_text())
        for line in re.findall(r"^    (?:\$ )?onoff (.*)$|`onoff ([^`\n]*)`", text, flags=re.M):
            words = shlex.split("".join(line).split("|")[0], comments=True)
            command = whole
            while isinstance(command, typer.core.TyperGroup) and words and not words[0].startswith("-"):
                name = words.pop(0)
                if "," in name or name.isupper():
                    break
                assert name in command.commands, f"{page.name}: onoff has no command {name!r}"
                command = command.commands[name]
            known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
            options = {word.split("=")[0] for word in words if re.match(r"--\w", word)}
            assert options <= known | {"--help", "--version"}, f"{page.name}: {' '.join(line)}: {options - known}"
            shown += 1
    assert shown > 20


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation as `make docs` builds it."""
    made = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(made)],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return made


def test_the_site_has_its_pages_and_nothing_of_python(site):
    assert (site / "index.html").exists()
    assert not [*site.rglob("__pycache__"), *site.rglob("*.py")]


@pytest.fixture(scope="module")
def phone(site):
    """A browser page as wide as a phone, with the site on a server of its own; what it asks for is in `asked`."""
    program = shutil.which("chromium") or pytest.skip("needs Debian's chromium")
    port = free_port()
    command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(site), str(port)]
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server,
        sync_playwright() as play,
    ):
        subprocess.run(["bash", "-c", LISTENING.format(port=port)], check=True, timeout=180)
        browser = play.chromium.launch(executable_path=program)
        context = browser.new_context(viewport={"width": 390, "height": 800}, permissions=["clipboard-read"])
        page, asked = context.new_page(), []
        page.on("request", lambda request: asked.append(request.url))
        yield page, asked, f"http://127.0.0.1:{port}/"
        browser.close()
        server.terminate()


def test_no_page_asks_elsewhere_and_nothing_on_it_is_wider_than_a_phone(site, phone):
    page, asked, url = phone
    for file in sorted(site.rglob("*.html")):
        page.goto(url + str(file.relative_to(site)))
        assert page.evaluate(WIDER) == [], file.name
    assert [other for other in asked if not other.startswith((url, "data:"))] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_links_of_the_other_documents_lead_somewhere(name):
    text = (ROOT / name).read_text()
    for target, anchor in re.findall(r"\]\(([^)#: ]*)(?:#([^)]*))?\)", text):
        assert (ROOT / target).exists(), target
        if anchor:
            page = (ROOT / target).read_text() if target else text
            headings = re.findall(r"^#+ (.*)$", page, flags=re.M)
            assert anchor in [re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings], anchor


def test_tests_named_in_the_documents_exist():
    known = {file.name: file.read_text() for file in (ROOT / "tests").rglob("test_*.py")}
    for page in PAGES:
        text = page.read_text()
        for name in re.findall(r"(test_\w+\.py)", text):
            assert name in known, f"{page.name} names {name}"
        for name in re.findall(r"::(test_\w+)", text):
            assert any(f"def {name}(" in code for code in known.values()), f"{page.name} names {name}"


def test_every_rule_of_the_guarantee_has_its_test():
    pages = ROOT / "docs" / "explanation"
    rules = (pages / "guarantee.md").read_text().split("## The rules of the client")[1].split("\n## ")[0]
    tests = (pages / "tests.md").read_text().split("## The rules of the client")[1].split("\n## ")[0]
    stated = re.findall(r"^(\d+)\. ", rules, flags=re.M)
    assert len(stated) == 13
    assert re.findall(r"^\| (\d+) \| .*`test_", tests, flags=re.M) == stated


def test_a_snippet_that_fails_would_be_seen():
    assert script("```console\n$ true\nshown\n$ false\n```\n") == "true\nfalse"
    assert "raise SystemExit(1)" in script("```python\nraise SystemExit(1)\n```\n")
