"""What the JSON of each command has: its fields in words. The reference is made of this, and a test compares it.

A command that prints a list has these fields in each of its items. Words in brackets: the field is not always there.
"""

from __future__ import annotations

MESSAGE = {
    "source": "what was asked for",
    "step": "the number of the step, from 0 on",
    "private": "whether it was made ON",
    "made_private": "whether it was asked OFF but made ON",
    "lag": "steps since privacy was last ON",
    "plan": "the plan or law from which the set was drawn",
    "query": "the names of the sources in the set that was sent",
    "cost": "what the plan or law expected the download to be: messages, or bytes with --lengths",
    "bytes": "what was received for the whole set",
    "attempts": "how often the query was sent",
    "round": "the server's number of the publication; null at a web server",
    "status": "the answer's status at a web server; 200 at ours",
    "content_type": "what the web server calls the message; null if it does not",
    "unchanged": "whether the server said that the client held this message already",
    "length": "bytes of the wanted message",
    "encoding": "of `body`: utf-8 or base64; null with --out",
    "body": "the message; null with --out",
    "file": "where the message was written; null without --out",
}
FOLLOWING = {
    "tested": "requests that came after another one",
    "bits": "what a better model gained on each of them, on average",
    "p_value": "bounds the probability of such evidence if the chain is right",
    "false_alarms": "the rate at which the right chain is called wrong",
    "found_at": "how many requests were needed to refute the chain; null if it is not",
    "impossible": "requests that the chain calls impossible",
    "hint": "what the better model looked at",
}
FIT = {
    "notes": "what was guessed about the log",
    "n": "sources of the chain",
    "rows": "rows of the log",
    "missing_user": "rows without a user",
    "missing_time": "rows without a time",
    "missing_source": "rows without a source",
    "dropped_rows": "rows that were left out",
    "breaks": "places where a row that was left out ends a sequence",
    "events": "rows that were used",
    "users": "different users",
    "one_event_users": "users with one event",
    "sequences": "sequences",
    "one_event_sequences": "sequences of one event",
    "transitions": "pairs of events after each other",
    "equal_times": "rows at the same time as the one before",
    "out_of_order": "places where the file's order and the clock disagree",
    "sources": "different sources in the log",
    "merged_sources": "sources that became `other`",
    "merged_events": "their events",
    "unseen_sources": "sources of held-out users only",
    "unseen_events": "their events",
    "dead_ends": "sources that nothing followed",
    "training_users": "users whose transitions shaped the chain",
    "training_transitions": "these transitions",
    "smoothing": "what was added to every count",
    "unseen_cells": "the share of possible transitions that training never saw",
    "held_out": "how well the chain predicts held-out users; null if nobody was held out",
    "second_eigenvalue": "its modulus: how slowly the chain forgets",
    "second_order_gain": "bits per transition that two requests back tell more than one, with its interval",
    "second_order_unknown": "which condition failed if that is null",
    "misfit": "for both promises, what may leak at each lag if the true chain is another one in the 95 % region",
    "costs": "the outer bound at each lag, with its interval",
    "saving": "what OFF requests save at best",
    "verdict": "the report in a sentence",
}
PLAN = {
    "file": "the plan's file",
    "valid": "whether all checks passed",
    "scheme": "its scheme",
    "lag": "its lag",
    "sources": "sources of the chain",
    "lags": "for each lag: contexts, those that keep the law, total variation found and stated",
    "cost": "the cost from the law, rounded up; null for a race",
    "estimate": "of a race: cost and standard error from fresh draws; else null",
    "lower_bound": "proved here, by which method, and as the plan states it",
    "findings": "what is wrong: rule, message, context, set, amount",
}
JOINT = {
    "scheme": "the scheme",
    "method": "how the bits were found",
    "bits": "what all queries up to each step tell about what is hidden",
    "holds": "whether that is as stated",
    "margin": "of sampled bits, 95 %",
    "bias": "of sampled bits",
    "distance": "total variation from independence",
    "allowed": "what the plans state",
    "whole": "leakage measures of all that is hidden together",
    "single": "the same of each request",
    "fault": "what was not drawn as stated",
    "tested": "the test of draws, in words",
}
TRANSCRIPT = {
    "steps": "steps of the stream that are in the log",
    "passed": "whether the outcome is PASSED, which is exit code 0",
    "outcome": "PASSED, FAILED or NO VERDICT (`word`), with `reasons`, and what was not looked at (`untested`)",
    "findings": "what is wrong with the log",
    "log": "what the attack gained, and its verdict",
    "naive": "the same for a client that asks openly while OFF",
    "not_in_stream": "steps that the client made and the log lacks; nothing is said of them",
    "repeats": "queries that came again",
    "other_lines": "queries of other streams",
    "breaches": "(with a journal) rules of the client that were broken",
    "draws": "(with the requests) the test of sets against their plans or laws",
    "choices": "(with a journal) the test of choices against requests",
    "following": "(with the requests) whether these follow the chain, as `onoff check` has it",
}
REAL = {
    "sources": "sources of the chain",
    "training": "people from whom the server learned",
    "cut_unknown": "sequences cut at a source that the chain does not have",
    "cut_impossible": "sequences cut at a step that the chain calls impossible",
    "leaks": "for each client and model of the server: bits, guesses and costs, with 95 % intervals",
}

FIELDS: dict[str, dict[str, str]] = {
    "get": MESSAGE,
    "resume": MESSAGE,
    "status": {
        "promise": "past or both",
        "sensitive": "the sensitive sources",
        "steps": "finished steps",
        "lag": "steps since privacy was last ON; null before a request has counted as ON",
        "full": "how many requests more ask for everything, whatever is said",
        "pending": "the request that is not answered yet, with its set; or null",
        "announced": "what the next request must be; or null",
        "next": "what the next request costs ON and OFF, in which unit, and what it costs at least",
        "rounding": "total variation so far",
        "totals": "steps, private ones, bytes, downloaded, expected cost, attempts, and steps at each lag",
        "refuted": "whether the requests speak against the chain",
        "following": "why, as `onoff check` has it",
    },
    "status (of a journal that learns)": {
        "n": "sources",
        "requests": "requests that were noted",
        "open": "those that were asked OFF",
        "open_pairs": "pairs of neighbouring requests, both asked OFF: what --open-only is fitted to",
    },
    "play": {
        "file": "what was played",
        "requests": "its requests",
        "made": "steps that were finished now",
        "note": "what there is to say; or null",
        "totals": "as in `status`, of the whole journal",
    },
    "urls": {
        "urls": "the URL of each source, by name",
        "redirected": "the URLs in the list of sources that were redirected, by name",
        "origins": "how many web servers there are",
    },
    "fit": FIT,
    "check": {
        **FOLLOWING,
        "refuted": "whether the requests speak against the chain",
        "unknown": "requests for no source of the chain, which were not tested",
    },
    "estimate": {
        "sources": "sources of the chain",
        "habits": "requests a day, the share of private ones, their runs, and how often a day a mirror fetches all",
        "sensitive": "the sensitive sources",
        "streams": "how many were simulated for each way",
        "everything": "bytes of all sources together; null without --lengths",
        "ways": "for each way: messages, bytes and changed bytes a day, with margins, and for whom it is right",
    },
    "rates": {
        "lag": "steps since privacy was last ON",
        "everything": "messages of the full set",
        "paper": "messages per request of the paper's scheme; null where only its bound was computed",
        "inner": "the paper's bound on it",
        "optimum": "messages per request of the best plan found",
        "gap": "how far that may be above the least",
        "scheme": "the scheme of that plan",
        "outer": "what no scheme undercuts",
    },
    "rates --promise past": {
        "streams": "how many were simulated",
        "sensitive": "the sensitive sources",
        "rows": "for each step after ON: cost, margin, bound, and the alternatives",
        "long_run": "with sensitive sources: mean cost and margin; else null",
    },
    "plan": {
        "directory": "where the plans are",
        "plans": "for each: lag, scheme, cost, lower bound, gap, rounding per step, whether the cost is estimated",
        "failed": "the error of each lag that has no plan",
    },
    "sweep": {
        "file": "the table",
        "cells": "plans and pairs of bounds",
        "kept": "those that were there already",
        "rows": "of the table",
    },
    "demo": {
        "seed": "of the simulated reader",
        "steps": "requests that every client made",
        "private": "those made ON",
        "sensitive": "those for sensitive sources",
        "by_habits": "the share of requests that is guessed without any query",
        "by_decoys": "the share of private requests that a set with decoys gives away by itself",
        "switched": "for each client: cost per request, and guesses and bits about private requests",
        "marked": "the same about sensitive requests",
        "wanted": "messages that our clients wanted",
        "delivered": "those that arrived and were the latest",
        "killed": "the client that was killed: its steps, where it was, and what the server saw of it",
        "findings": "what speaks against our clients; none if all is as promised",
    },
    "audit plan": PLAN,
    "audit joint": JOINT,
    "audit joint --true-chain": {
        "scheme": "the scheme",
        "anywhere": "the bound after each step, wherever the stream starts",
        "distances": "the bound from the given start",
        "bits": "the bound in bits",
        "encoders": "the part of the encoders",
        "found": "the exact value",
        "holds": "whether it is within the bound",
    },
    "audit joint --promise past": {
        "statuses": "ON and OFF",
        "sensitive": "the sensitive sources",
        "clients": "what each client's queries tell, step by step",
        "holds": "whether ours is as promised",
    },
    "audit joint --promise past --true-chain": {
        "distances": "the bound after each step",
        "allowed": "the part of rounding",
        "anywhere": "the bound wherever the stream starts",
        "bits": "the bound in bits",
        "found": "the exact value",
        "holds": "whether it is within the bound",
        "guess": "how much more often a guess may be right",
    },
    "audit switching": {
        "user": "when this user goes ON",
        "seen": "what the server sees",
        "steps": "what it learns about each request made ON",
    },
    "audit transcript": {
        **TRANSCRIPT,
        "clean": "whether the attack on the log failed and the requests do not speak against the chain",
        "law": "(without a journal) the test of sets against the public law of the plans",
    },
    "audit transcript --promise past": {
        **TRANSCRIPT,
        "promise": "past",
        "sensitive": "the sensitive sources",
        "off": "OFF steps",
        "recorded": "whether there is a record; if not, the laws were made again from public things",
        "remade": "recorded laws that are those of the installed version",
        "notes": "what else was seen",
    },
    "audit real": {**REAL, "bits_to_predict_a_request": "of each model, on people that it did not learn from"},
    "audit real --promise past": {**REAL, "promise": "past", "sensitive": "the sensitive sources"},
}

# Commands that print no result, and what they print instead.
WITHOUT = {
    "normalise": "a file, and a line about it",
    "proxy": "a line of JSON when it is ready",
    "serve": "a line of JSON when it is ready",
    "token": "the token",
    "page": "the address of the page",
    "reproduce": "the names of its files",
}


def fields_page() -> str:
    """The fields of all commands as tables in Markdown."""
    lines = []
    for command, fields in FIELDS.items():
        name, _, when = command.partition(" (")
        lines += [f"### `onoff {name} --json`{when and f' ({when}'}", "", "| field | what it is |", "|---|---|"]
        lines += [f"| `{name}` | {words} |" for name, words in fields.items()]
        lines.append("")
    return "\n".join(lines)
