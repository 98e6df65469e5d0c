"""What the site says from the code: mkdocs calls this hook for every page.

A comment `<!-- commands -->`, `<!-- fields -->`, `<!-- api -->` or `<!-- modules -->` in a page is replaced when the
site is built. So the reference cannot fall behind the code.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import typer
import typer.cli

import onoff
from onoff.apps.cli.app import app
from onoff.apps.cli.fields import fields_page

SOURCE = Path(__file__).parents[1] / "src" / "onoff"
FLOORS = {
    "": "The ground floor",
    "model": "The chain and what it implies (Sections II to IV of the paper)",
    "schemes": "How to choose sets: laws, bounds and their proofs",
    "plans": "Laws made ready to draw from, and kept in files",
    "everyday": "The everyday promise, step by step",
    "client": "The client: session, journal, transports",
    "server": "The server",
    "audit": "What a server can learn, checked without the makers of plans",
    "logs": "From logs to chains",
    "apps": "Command line, page, proxy, demonstration, sweeps",
    "testing": "For tests, ours and yours",
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The text of a page with its comments replaced."""
    for mark, made in (("commands", commands), ("fields", fields_page), ("api", api), ("modules", modules)):
        comment = f"<!-- {mark} -->"
        if comment in markdown:
            markdown = markdown.replace(comment, made())
    return markdown


def commands() -> str:
    """Every command with its arguments and options, as `--help` has them."""
    command = typer.main.get_command(app)
    text = typer.cli.get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="onoff"), name="onoff")
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)*", "", text)  # the contents list them, without cutting sentences
    everywhere = "--help|-q, --quiet|-v, --verbose|--install-completion|--show-completion"
    text = re.sub(rf"^\* `(?:{everywhere})`: .*\n", "", text, flags=re.M)  # said once, at the top of the page
    text = re.sub(r"^Example: (.*)$", r"Example: `\1`", text, flags=re.M)
    return text.replace("# `onoff`\n\n", "", 1)


def api() -> str:
    """The public names without the errors, those of readers first; mkdocstrings fills in what each one says."""
    homes = {name: getattr(getattr(onoff, name), "__module__", "onoff.errors") for name in onoff.__all__}
    names = [name for name in onoff.__all__ if homes[name] != "onoff.errors"]
    names.sort(key=lambda name: (not homes[name].startswith("onoff.client."), homes[name], name))
    return "\n".join(f"::: onoff.{name}\n" for name in names)


def modules() -> str:
    """Every module with the first sentence it says of itself, floor by floor."""
    lines = []
    for floor, title in FLOORS.items():
        files = sorted((SOURCE / floor).rglob("*.py") if floor else SOURCE.glob("*.py"))
        lines += [f"## {title}", "", "| module | what it is |", "|---|---|"]
        for file in files:
            said = ast.get_docstring(ast.parse(file.read_text()))
            if said and not (file.name == "__init__.py" and len(said) < 40):
                name = ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
                first = " ".join(said.split("\n\n")[0].split()).replace("|", "\\|")
                lines.append(f"| `{name}` | {first} |")
        lines.append("")
    return "\n".join(lines)
