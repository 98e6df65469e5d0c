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

from onoff.apps.cli.app import app
from ports import free_port

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", flags=re.M | re.S)
LONG = ("tutorial", "costs")  # pages whose snippets take long
PORTS = ("8700", "8710", "8720")  # in the documents; free ones are used here
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


@pytest.mark.long
def test_the_site_builds_and_every_link_and_anchor_leads_somewhere(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()
    assert not [*tmp_path.rglob("__pycache__"), *tmp_path.rglob("*.py")]
    for page in tmp_path.rglob("*.html"):
        assert loaded_from_elsewhere(page.read_text()) == [], page.name


def loaded_from_elsewhere(html: str) -> list[str]:
    """Addresses of other hosts from which a page would load something: anything but the links that a reader follows."""
    tags = re.findall(r"<(?!a\b)\w[^>]*>", html)
    return [tag for tag in tags if re.search(r"""(?:src|href|srcset|data)=["']?(?:https?:)?//""", tag)]


def test_a_page_that_loads_something_from_elsewhere_would_be_seen():
    for tag in ('<script src="https://cdn.example/x.js">', "<link rel=stylesheet href=//fonts.example/css>"):
        assert loaded_from_elsewhere(f'<a href="https://example.org">a link</a>{tag}') == [tag]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
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


def test_every_statement_of_the_guarantee_names_its_test():
    text = (ROOT / "docs" / "explanation" / "guarantee.md").read_text()
    rules = re.findall(r"^\d+\. .*?(?=^\d+\. |\n\n)", text.split("## The rules of the client")[1], flags=re.M | re.S)
    assert len(rules) == 13
    for rule in rules:
        assert "test_" in rule, rule


def test_a_snippet_that_fails_would_be_seen():
    assert script("```console\n$ true\nshown\n$ false\n```\n") == "true\nfalse"
    assert "raise SystemExit(1)" in script("```python\nraise SystemExit(1)\n```\n")
