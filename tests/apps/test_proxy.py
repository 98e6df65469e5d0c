"""The proxy's application over a real client: one step for each request, and none for what it refuses."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest
from starlette.datastructures import Headers

from clientkit import BODIES, NAMES, client_with, scene
from onoff import Chain, HttpTransport
from onoff.apps.proxy import responses
from onoff.apps.proxy.guard import refusal
from proxykit import no_answer, proxied, steps, through, true_status
from recordingserver import reply

OWN = {"host": "127.0.0.1:8800"}


def test_a_get_is_one_step_and_answers_with_what_the_origin_said(web):
    def typed(request):
        return reply(BODIES["news"], 200 if request.path == "/news" else 410, headers=["Content-Type: text/x; a=b"])

    web.server.respond = typed

    async def ask(http, queue):
        answers = [await http.get("/news"), await http.get("/sports"), await http.head("/news")]
        return answers, steps(queue)

    answers, made = through(web, ask)
    assert [answer.status_code for answer in answers] == [200, 410, 200]
    assert [answer.content for answer in answers] == [BODIES["news"], BODIES["news"], b""]
    assert {answer.headers["content-type"] for answer in answers} == {"text/x; a=b"}
    assert {answer.headers["content-length"] for answer in answers} == {str(len(BODIES["news"]))}
    assert ([answer.headers["onoff-step"] for answer in answers], made) == (["0", "1", "2"], 3)


def test_a_status_that_would_make_programs_ask_again_is_not_handed_on(web):
    honest = web.server.respond

    async def ask(http, queue):
        answers = []
        for status in (304, 407, 408, 421, 425, 429, 500, 502, 503, 504, 599, 600, 999, 404, 204, 301):
            web.server.respond = lambda request, status=status: (
                reply(b"" if status in (204, 304) else b"?", status) if request.path == "/news" else honest(request)
            )
            answers.append((status, await http.get("/news")))
            queue.client.journal._failed = None  # its time is over
        return answers, steps(queue)

    answers, made = through(web, ask)
    for status, answer in answers[:-3]:
        assert true_status(answer) == status
    assert [answer.status_code for _, answer in answers[-3:]] == [404, 204, 301]
    assert made == len(answers)


def test_a_local_etag_saves_the_body_but_not_the_step(web):
    honest = web.server.respond

    async def ask(http, queue):
        first = await http.get("/news")
        tag = first.headers["etag"]
        held = [await http.get("/news", headers={"if-none-match": value}) for value in (tag, f'"x", W/{tag}', "*")]
        other = await http.get("/news", headers={"if-none-match": '"x"'})
        web.server.respond = lambda request: reply(b"newer") if request.path == "/news" else honest(request)
        return held, other, await http.get("/news", headers={"if-none-match": tag}), steps(queue)

    held, other, newer, made = through(web, ask)
    assert [(answer.status_code, answer.content) for answer in held] == [(304, b"")] * 3
    assert (other.status_code, other.content) == (200, BODIES["news"])
    assert (newer.status_code, newer.content) == (200, b"newer")
    assert made == 6


def test_what_names_no_source_and_what_is_no_reading_makes_no_step(web):
    async def ask(http, queue):
        unknown = [await http.get(path) for path in ("/nothing", "/news/", "/news?x=1", "/%ff", "/onoff/privacy/x")]
        unknown.append(await http.get("/onoff/metrics"))
        wrong = [await http.request(method, "/news") for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH")]
        return unknown, wrong, steps(queue)

    unknown, wrong, made = through(web, ask)
    assert {answer.status_code for answer in unknown} == {404}
    assert {answer.status_code for answer in wrong} == {405}
    assert {answer.headers["allow"] for answer in wrong} == {"GET, HEAD"}
    assert made == 0
    assert not web.server.recording()


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "anything else"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8800"},
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:8800"},
        {"host": "localhost.evil.example"},
        {"host": "0.0.0.0:8800"},  # browsers say nothing of themselves there, nor at the next three
        {"host": "[::]:8800"},
        {"host": "[::ffff:7f00:1]:8800"},
        {"host": "[::ffff:127.0.0.1]:8800"},
        {"host": ""},
        {"sec-purpose": "prefetch;prerender", "sec-fetch-site": "none"},
        {"purpose": "prefetch"},
    ],
)
def test_what_a_web_page_could_trigger_is_refused_before_a_step(web, headers):
    async def ask(http, queue):
        before = queue.private
        answers = [await http.get(path, headers=headers) for path in ("/news", "/", "/onoff/privacy")]
        answers.append(await http.put("/onoff/privacy", content="off", headers=headers))
        return answers, steps(queue), before == queue.private

    answers, made, unchanged = through(web, ask)
    assert {answer.status_code for answer in answers} <= {403, 421}
    assert not any("access-control-allow-origin" in answer.headers for answer in answers)
    assert (made, unchanged) == (0, True)
    assert not web.server.recording()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8800"},
        {"host": "localhost:8800", "origin": "http://localhost:8800"},
        {"host": "[::1]:8800"},
        {"host": "192.168.1.7"},
    ],
)
def test_programs_and_the_users_own_visits_come_in(headers):
    assert refusal(Headers({**OWN, **headers})) is None


def test_bodies_have_no_power_in_a_browser(web):
    async def ask(http, _):
        return await http.get("/news"), await http.get("/nothing")

    for answer in through(web, ask):
        policy = answer.headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "sandbox"} <= set(policy)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_the_privacy_switch_decides_and_is_remembered(web):
    async def first(http, queue):
        found = [(await http.get("/news")).headers["onoff-status"], (await http.get("/onoff/privacy")).text]
        put = await http.put("/onoff/privacy", content="off")
        found += [put.text, (await http.get("/sports")).headers["onoff-status"]]
        for body in ("ON", "off\n"):
            assert (await http.put("/onoff/privacy", content=body)).status_code == 200
            found.append(queue.private)
        for body in ("", "maybe", '{"privacy": "on"}'):
            assert (await http.put("/onoff/privacy", content=body)).status_code == 400
        assert (await http.put("/onoff/privacy", content="x" * 2000)).status_code == 413
        return found

    async def second(http, _):
        return (await http.get("/onoff/privacy")).text

    assert through(web, first) == ["on", "on\n", "privacy is OFF\n", "off", True, False]
    assert through(web, second) == "off\n"


def test_the_switch_of_the_page_needs_the_token_of_the_page(web):
    async def ask(http, queue):
        page = (await http.get("/")).text
        token = re.search(r'name="token" value="([^"]+)"', page)[1]
        wrong = [await http.post("/onoff/privacy", data=data) for data in ({"privacy": "off"}, {"token": "x" * 43})]
        before = queue.private
        right = await http.post("/onoff/privacy", data={"token": token, "privacy": "off"})
        return wrong, before, right, queue.private, await http.delete("/onoff/privacy")

    wrong, before, right, after, deleted = through(web, ask)
    assert [answer.status_code for answer in wrong] == [403, 403]
    assert (before, right.status_code, right.headers["location"], after) == (True, 303, "/", False)
    assert deleted.status_code == 405


def test_a_journal_with_sensitive_sources_starts_off(web):
    async def ask(http, queue):
        return queue.private, (await http.get("/")).text

    private, page = through(web, ask, sensitive=("sports",))
    assert not private
    assert "sports</a> (sensitive)" in page


def test_a_proxy_without_a_chain_learns_and_its_page_says_how_far_it_is(web):
    async def run():
        async with proxied(client_with(None, web.transport(), web.directory / "learned", delay=0.001)) as (
            http,
            queue,
        ):
            pages = []
            for number in range(53):
                answer = await http.get(f"/{NAMES[number % 5]}")
                if number in (9, 50, 52):
                    assert answer.headers["onoff-privacy"] == (await http.get("/absent")).headers["onoff-privacy"]
                    pages += [(await http.get("/")).text, answer.headers["onoff-privacy"]]
            assert not queue.private
            return pages

    learning, noted, complete, next_off, known, used = asyncio.run(run())
    assert noted == "past; learning; 9 of 50 transitions are noted; stay OFF; see /"
    assert next_off == "past; complete; make the next request OFF; see /"
    assert used == "past; known; see /"
    assert "While it is OFF, new requests ask for everything" in learning
    assert "9 transitions of 50 are noted" in learning
    assert "Privacy is OFF" in learning
    assert "Make the next request OFF" in complete
    assert "the query of a private request tells nothing" in known
    assert "the fuse is whole" in known
    assert "are noted" not in known


def test_the_switch_stays_as_it_was_when_the_habits_are_known_and_is_off_when_they_are_learned_anew(web):
    async def run():
        async with proxied(client_with(None, web.transport(), place, delay=0.001)) as (http, queue):
            for number in range(53):
                await http.get(f"/{NAMES[number % 5]}")
        async with proxied(client_with(None, web.transport(), place, delay=0.001)) as (http, queue):
            before = queue.private
            queue.switch(True)
        async with proxied(client_with(None, web.transport(), place, delay=0.001, relearn=True)) as (http, queue):
            return before, queue.private, queue.client.habits.stage

    place = web.directory / "learned"
    assert asyncio.run(run()) == (False, False, "learning")


def test_the_page_escapes_what_others_wrote_and_runs_nothing(web):
    async def ask(http, queue):
        web.server.respond = no_answer
        await http.get("/news")
        queue.trouble = "<script>alert(1)</script>"
        return await http.get("/")

    page = through(web, ask)
    assert "<script" not in page.text
    assert "&lt;script&gt;" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "script-src" not in page.headers["content-security-policy"]
    for words in ("Privacy is ON", "Last error", "rounding", "To mirror everything takes"):
        assert words in page.text


def test_bodies_are_hashed_beside_the_loop_at_every_size(web, monkeypatch):
    """A page of others could time its refusals, and so see which body was handed over."""
    threads, digest = set(), responses._tag
    monkeypatch.setattr(responses, "_tag", lambda *words: threads.add(threading.get_ident()) or digest(*words))

    async def ask(http, _):
        await http.get("/news")
        return threading.get_ident()

    assert through(web, ask) not in threads
    assert threads


def test_a_browser_that_was_led_to_a_source_gets_a_link_and_makes_no_step(web):
    """A redirect of a stranger keeps the word of the browser that the address was typed."""
    led = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-user": "?1"}

    async def ask(http, queue):
        answer = await http.get("/news", headers=led)
        own = await http.get("/news", headers={**led, "sec-fetch-site": "same-origin"})
        return answer, own, steps(queue)

    answer, own, made = through(web, ask)
    assert '<a href="/news">news</a>' in answer.text
    assert BODIES["news"] not in answer.content
    assert (own.content, made) == (BODIES["news"], 1)


def test_a_path_names_a_source_by_name(tmp_path):
    names = ("a/b c", "ü", "..", "onoff/privacy", "<")
    with scene("any", tmp_path, {name: name.encode() for name in names}) as web:
        urls = {name: f"{web.server.url}/{number}" for number, name in enumerate(names)}
        web.server.respond = lambda request: reply(names[int(request.path[1:])].encode())

        async def run():
            client = client_with(
                Chain([[0.2] * 5] * 5, names), HttpTransport(urls), tmp_path / "journal", promise="past", delay=0.001
            )
            async with proxied(client) as (http, _):
                return [(await http.get(path)).text for path in ("/a/b%20c", "/a%2Fb%20c", "/%C3%BC", "/")]

        *found, page = asyncio.run(run())
    assert found == ["a/b c", "a/b c", "ü"]
    for shown in ('<a href="/a%2Fb%20c">a/b c</a>', '<a href="/%3C">&lt;</a>', "<li>..</li>", "<li>onoff/privacy</li>"):
        assert shown in page
