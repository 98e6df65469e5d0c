"""What the site says from the code: mkdocs calls this hook for every page.

A comment `<!-- commands -->`, `<!-- results -->`, `<!-- api -->` or `<!-- modules -->` in a page is replaced when the
site is built. So the reference cannot fall behind the code.
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields, is_dataclass
from html import unescape
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import typer
import typer.cli

import onoff
from onoff.apps.cli.app import app

SOURCE = Path(__file__).parents[1] / "src" / "onoff"
FLOORS = {
    "": "The ground floor",
    "model": "The chain and what it implies (Sections II to IV of the paper)",
    "schemes": "How to choose sets: laws, bounds and their proofs",
    "plans": "Laws made ready to draw from, and kept in files",
    "past": "The promise `past`, step by step",
    "client": "The client: protocol, journal, transports",
    "server": "The server",
    "audit": "What a server can learn, checked without the makers of plans",
    "logs": "From logs to chains",
    "apps": "Command line, page, proxy, demonstration, costs",
    "testing": "For tests, ours and yours",
}
# The frozen results that commands print with --json, or functions that make one object of several.
RESULTS = {
    "get": "onoff.apps.cli.read.message_data",
    "resume": "onoff.apps.cli.read.message_data",
    "status": "onoff.apps.cli.status.status_data",
    "play": "onoff.apps.cli.read.PlayResult",
    "setup": "onoff.client.feeds.FoundUrls",
    "fit": "onoff.logs.fit.Report",
    "costs": "onoff.apps.costs.Costs",
    "costs --day": "onoff.apps.day.Day",
    "plan": "onoff.apps.cli.plan.Plans",
    "demo": "onoff.apps.demo.run.Demonstration",
    "audit streams": "onoff.audit.streams.StreamAudit",
    "audit people": "onoff.audit.people.PeopleAudit",
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The text of a page with its comments replaced."""
    for mark, made in (("commands", commands), ("results", results), ("api", api), ("modules", modules)):
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


def results() -> str:
    """What every result says of itself, with its fields, and the same of the results inside of it."""
    lines, said = [], set()
    for name in RESULTS:
        command, _, when = name.partition(" (")
        lines += [f"### `onoff {command} --json`{when and f' ({when}'}", ""]
        waiting = [result_type(name)]
        while waiting:
            result = waiting.pop(0)
            if result in said:
                lines += [f"`{result.__name__}`, as above.", ""]
                continue
            said.add(result)
            if not is_dataclass(result):
                lines += [cleandoc(result.__doc__ or ""), ""]
                continue
            lines += [f"**`{result.__name__}`**: {cleandoc(result.__doc__ or '')}", "", "| field | type |", "|---|---|"]
            lines += [f"| `{field.name}` | `{str(field.type).replace('|', 'or')}` |" for field in fields(result)] + [""]
            waiting += _inside(result)
    return "\n".join(lines)


def result_type(name: str) -> Any:
    """The frozen result of a command."""
    module, _, kind = RESULTS[name].rpartition(".")
    return getattr(import_module(module), kind)


def _inside(result: Any) -> list[Any]:
    """The results that the fields of a result hold."""
    known = vars(import_module(result.__module__))
    words = [word for field in fields(result) for word in re.findall(r"\w+", str(field.type))]
    found = dict.fromkeys(known[word] for word in words if is_dataclass(known.get(word)))
    return [kind for kind in found if kind is not result]


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


def on_page_content(html: str, **_: Any) -> str:
    """Set formulas as MathML, which browsers draw without a script. `\\(...\\)` stands in a line, `\\[...\\]` alone."""
    from latex2mathml.converter import convert

    def formula(found: re.Match[str]) -> str:
        text = unescape(found[2])
        if text.startswith("\\["):
            return f'<div class="formula">{convert(text[2:-2].strip(), display="block")}</div>'
        return convert(text[2:-2].strip())

    return re.sub(r'<(span|div) class="arithmatex">(.*?)</\1>', formula, html, flags=re.S)
