"""The glossary: coined words are in it, and what is in it is used."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "glossary.md"
WORDS = re.findall(r"^\| ([\w -]+?) \|", PAGE.read_text(), flags=re.M)[1:]
COINED = """
answer, catalogue, certificate, chain, comb, context, cost, counts as ON, cut, decoys, Dirichlet, dominate, encoder,
excess, exhibit, finding, flow, full set, gap, habits, hidden, journal, lag, law, learning, made ON, mass, merge,
mirroring, misfit, naive, openly, outer bound, peel, pending, plan, posterior, prior, promise, proxy, query, race,
realisable, record, repair, replay, request, round, rounding, row, scheme, sensitive, slack, smoothing, source,
status, step, stream, support, total variation, transcript, transport, unit, verdict, witness
"""


def test_every_coined_word_is_in_the_glossary():
    assert set(WORDS) >= set(" ".join(COINED.split()).split(", "))


def test_the_words_are_in_order_and_each_is_there_once():
    assert sorted(set(WORDS), key=lambda word: (word.lower(), word)) == WORDS


def test_every_word_of_the_glossary_is_used_elsewhere():
    """With its usual endings: "peeled", "counted as ON"."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    text = "\n".join(file.read_text() for file in files if file != PAGE)
    for word in WORDS:
        first, *rest = word.split(" ", 1)
        ending = r"(?:e?s|e?d|ing)?"
        pattern = rf"\b{re.escape(first)}{ending}" + "".join(rf"\s+{re.escape(part)}{ending}" for part in rest) + r"\b"
        assert re.search(pattern, text, flags=re.I), f"nothing speaks of {word!r}"
