"""`httpx_transport`: programs with httpx, two of them from PyPI, read through a client from real web servers."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

from clientkit import BODIES, CHAIN, NAMES, planted
from onoff import Chain, connect, connect_sync, httpx_transport
from onoff.client import programs
from onoff.client.status import snapshot
from onoff.client.sync import LoopThread
from onoff.errors import Unavailable
from recordingserver import RecordingServer, Reply, reply
from waiting import until

ON = {"private": True}
OFF = {"private": False}


@pytest.fixture
def elsewhere():
    """A web server that is none of the client's."""
    with RecordingServer(lambda _: reply(b"from elsewhere")) as server:
        yield server


def settings(web, **options):
    known = {**web.address(), "journal": web.directory / "journal", "first_ever": True}
    return {"chain": CHAIN, **known, "delay": 0.001, "attempts": 1, **options}


def program(web, private=None, others=None, **options):
    """A program with `async`, as its user makes it."""
    client = connect(**settings(web, **options))
    return httpx.AsyncClient(transport=httpx_transport(client, private=private, others=others))


def use(web, ask, **options):
    """What `ask` gives, called with a program."""

    async def whole():
        async with program(web, **options) as http:
            return await ask(http)

    return asyncio.run(whole())


def no_answer(_):
    return Reply([], close=True)


def url(web, name="news"):
    return f"{web.server.url}/{name}"


def steps(web):
    """The steps in the journal, each as (source, whether it was ON)."""
    with closing(sqlite3.connect(web.directory / "journal")) as database:
        found = database.execute("SELECT request, private FROM steps ORDER BY step").fetchall()
    return [(NAMES[request], bool(private)) for request, private in found]


def test_a_known_url_is_one_step_with_the_status_the_type_and_the_body_of_its_source(web):
    web.server.respond = lambda request: reply(
        BODIES[request.path[1:]], 410 if request.path == "/sports" else 200, headers=["Content-Type: text/x; a=b"]
    )

    async def ask(http):
        return [await http.get(url(web, name)) for name in ("news", "sports")] + [await http.head(url(web))]

    answers = use(web, ask)
    assert [answer.status_code for answer in answers] == [200, 410, 200]
    assert [answer.content for answer in answers] == [BODIES["news"], BODIES["sports"], b""]
    assert {answer.headers["content-type"] for answer in answers} == {"text/x; a=b"}
    assert [answer.headers["content-length"] for answer in answers] == ["21", "23", "21"]
    assert [answer.headers["onoff-step"] for answer in answers] == ["0", "1", "2"]
    assert steps(web) == [("news", True), ("sports", True), ("news", True)]


def test_the_servers_see_what_a_client_sends_and_nothing_that_the_program_says(web):
    said = {"authorization": "Bearer x", "if-none-match": "*", "user-agent": "program", "range": "bytes=0-1"}

    async def ask(http):
        http.cookies.set("secret", "x")
        for name, more in (("news", said), ("culture", {})):
            await http.get(url(web, name), headers=more, timeout=0.001)

    def whole(name):
        return b"".join(sent for connection in web.server.recording() for sent in connection).count(name)

    use(web, ask)
    sent = web.server.recording()
    web.server.reset()
    (web.directory / "journal").unlink()
    with connect_sync(**settings(web)) as client:
        for name in ("sports", "weather"):
            client.get(name)
    assert web.server.recording() == sent
    assert whole(b"Bearer") == whole(b"secret") == 0


def test_a_program_without_async_gets_the_same_from_any_thread(web):
    wanted = [NAMES[i % 5] for i in range(20)]
    with (
        httpx.Client(transport=httpx_transport(connect(**settings(web)))) as http,
        ThreadPoolExecutor(5) as pool,
    ):
        answers = list(pool.map(lambda name: http.get(url(web, name)), wanted))
        assert http.head(url(web)).content == b""
        with pytest.raises(httpx.RequestError, match="none of the client's URLs"):
            http.get(f"{web.server.url}/other")
    assert [answer.content for answer in answers] == [BODIES[name] for name in wanted]
    assert sorted(int(answer.headers["onoff-step"]) for answer in answers) == list(range(20))
    assert snapshot(web.directory / "journal").memory.gap is False  # the end was a clean one


def test_threads_that_ask_first_at_the_same_time_open_one_client(web):
    begun, opened, start = threading.Semaphore(0), [], LoopThread.open

    def open_late(self):
        """Returns when all threads ask, if they can."""
        opened.append(self)
        for _ in range(5):
            assert begun.acquire(timeout=60)
        return start(self)

    def read(name):
        begun.release(1 + 4 * len(opened))  # a second one that opens must not wait for ever
        return http.get(url(web, name)).status_code

    with planted((LoopThread, "open", open_late)), ThreadPoolExecutor(5) as pool:
        http = httpx.Client(transport=httpx_transport(connect(**settings(web))))
        assert list(pool.map(read, NAMES)) == [200] * 5
        http.close()
    assert len(opened) == 1


def test_urls_are_compared_as_the_catalogue_compares_them(web, elsewhere):
    here = web.server.url
    sources = {"a": f"{here}/a%7Eb?x=1", "b": "http://127.0.0.1/b", "c": "http://EXAMPLE.org", "d": "http://ü.de/ü"}
    known = [
        "/a%7Eb?x=1", "/a%7Eb?x=1#there", "http://127.0.0.1:80/b", "http://user:word@127.0.0.1/b#there",
        "http://example.org/", "http://xn--tda.de/%C3%BC",
    ]  # fmt: skip
    unknown = [
        "/a%7Eb", "/a%7Eb?x=2", "/a%7Eb?x=1&y=2", "/a%7Eb/?x=1", "https://127.0.0.1/b", "http://[::1]/b", "//x/b",
    ]  # fmt: skip
    transport = httpx_transport(connect(urls=sources, journal=web.directory / "journal", promise="all"))
    for given in known:
        request = httpx.Client(base_url=web.server.url).build_request("GET", given)
        assert transport.source_of(request) is not None, given
    for given in [*unknown, f"{elsewhere.url}/a%7Eb?x=1"]:
        with pytest.raises(httpx.RequestError, match=r"none of the client's URLs.*No step was made"):
            transport.source_of(httpx.Client(base_url=web.server.url).build_request("GET", given))
    with pytest.raises(httpx.RequestError, match="'/b'"):
        transport.source_of(httpx.Request("GET", "/b"))


def test_what_is_refused_makes_no_step_and_sends_nothing(web):
    async def ask(http):
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            with pytest.raises(httpx.RequestError, match="can only be read"):
                await http.request(method, url(web))
        for other in (f"{web.server.url}/other", "http://name:password@127.0.0.1:1/x"):
            with pytest.raises(httpx.RequestError, match="none of the client's URLs") as caught:
                await http.get(other)
            assert caught.value.request.method == "GET"
            assert "password" not in str(caught.value)

    use(web, ask)
    assert not web.server.recording()
    assert not (web.directory / "journal").exists()


@pytest.mark.parametrize("is_async", [True, False])
def test_unknown_urls_pass_through_by_choice_but_none_leads_to_a_step(web, elsewhere, is_async):
    def respond(request):
        return reply(b"", 302, [f"Location: {url(web)}"]) if request.path == "/led" else reply(b"from elsewhere")

    elsewhere.respond = respond

    async def ask(http):
        found = [await http.post(f"{elsewhere.url}/x", content="y"), await http.get(url(web))]
        with pytest.raises(httpx.RequestError, match="has led here"):
            await http.get(f"{elsewhere.url}/led", follow_redirects=True)
        return found

    if is_async:
        found = use(web, ask, others=httpx.AsyncHTTPTransport())
    else:
        transport = httpx_transport(connect(**settings(web)), others=httpx.HTTPTransport())
        with httpx.Client(transport=transport) as http:
            found = [http.post(f"{elsewhere.url}/x", content="y"), http.get(url(web))]
            with pytest.raises(httpx.RequestError, match="has led here"):
                http.get(f"{elsewhere.url}/led", follow_redirects=True)
    assert [answer.content for answer in found] == [b"from elsewhere", BODIES["news"]]
    assert [request.path for request in elsewhere.requests] == ["/x", "/led"]
    assert steps(web) == [("news", True)]


def test_a_redirect_of_a_source_is_a_message_that_leads_nowhere(web, elsewhere):
    web.server.respond = lambda _: reply(b"there", 302, [f"Location: {elsewhere.url}/x"])

    async def ask(http):
        return await http.get(url(web), follow_redirects=True)

    answer = use(web, ask, others=httpx.AsyncHTTPTransport())
    assert (answer.status_code, answer.content) == (302, b"there")
    assert not elsewhere.requests


def test_one_transport_at_several_mounts_is_one_client(web, elsewhere):
    async def ask():
        inner = httpx_transport(connect(**settings(web)))
        mounts = {web.server.url: inner, f"{web.server.url}/news": inner}
        async with httpx.AsyncClient(mounts=mounts) as http:
            return [(await http.get(there)).content for there in (url(web), url(web, "sports"), elsewhere.url)]

    assert asyncio.run(ask()) == [BODIES["news"], BODIES["sports"], b"from elsewhere"]
    assert len(steps(web)) == 2


@pytest.mark.parametrize(("private", "expected"), [(None, "on"), (True, "on"), (False, "off")])
def test_the_argument_says_whether_requests_are_on_and_a_request_may_say_otherwise(web, private, expected):
    async def ask(http):
        await http.get(url(web))
        answers = [await http.get(url(web, "sports"), extensions=more) for more in ({}, ON, OFF)]
        with pytest.raises(httpx.TransportError, match="private is 'no'"):
            await http.get(url(web), extensions={"private": "no"})
        return [answer.headers["onoff-status"] for answer in answers]

    assert use(web, ask, private=private) == [expected, "on", "off"]


STATUSES = (407, 408, 421, 425, 429, 500, 502, 503, 504, 599)


def news_fails(web, status):
    """What a server does that has another status for the news."""
    honest = web.origin
    return lambda request: reply(b"sorry", status) if request.path == "/news" else honest(request)


@pytest.mark.parametrize("status", STATUSES)
def test_a_program_that_asks_again_by_itself_asks_once_at_every_status(web, status):
    """`httpx-retries`, a transport around ours, asks again after all statuses that it ever asks again after."""
    retries = pytest.importorskip("httpx_retries")
    again = retries.Retry(total=3, backoff_factor=0, status_forcelist=[s for s in range(405, 600) if s != 424])
    web.server.respond = news_fails(web, status)

    def asked(place):
        inner = httpx_transport(connect(**settings(web, journal=web.directory / place)))
        with httpx.Client(transport=retries.RetryTransport(transport=inner, retry=again)) as http:
            answer = http.get(url(web))
        if place == "journal":
            assert (answer.status_code, answer.headers["onoff-true-status"]) == (424, str(status))
            assert answer.reason_phrase == f"the origin answered {status}"
        return 1 + answer.extensions["retry"].attempts_made

    assert asked("journal") == len(steps(web)) == 1
    with planted((programs, "safe_status", lambda status: status)):
        assert asked("planted") == 4


def test_a_program_that_asks_again_after_errors_does_not_after_ours(web):
    retries, calls = pytest.importorskip("httpx_retries"), []

    async def away(*_):
        calls.append(1)
        raise Unavailable("the servers did not answer")

    client = connect(**settings(web))
    client.transport.fetch = away
    with httpx.Client(transport=retries.RetryTransport(transport=httpx_transport(client))) as http:
        with pytest.raises(httpx.TransportError, match="did not answer"):
            http.get(url(web))
        assert len(calls) == 1


def test_the_projects_of_a_package_index_are_read_by_a_program_from_pypi(web):
    """`simple-repository`, with which package indexes are built, takes an httpx client."""
    http_repository = pytest.importorskip("simple_repository.components.http")
    errors = pytest.importorskip("simple_repository.errors")
    page = '<!doctype html><a href="../../files/{0}-1.0.tar.gz#sha256=aa">{0}-1.0.tar.gz</a>'
    projects = ("alpha", "beta", "gamma")

    def respond(request):
        name = request.path.split("/")[2]
        return (
            reply(b"", 404)
            if name == "gamma"
            else reply(page.format(name).encode(), headers=["Content-Type: text/html"])
        )

    web.server.respond = respond
    sources = {name: f"{web.server.url}/simple/{name}/" for name in projects}

    async def read():
        client = connect(Chain([[1 / 3] * 3] * 3, projects), urls=sources, journal=web.directory / "j", delay=0.001)
        async with httpx.AsyncClient(transport=httpx_transport(client), follow_redirects=True) as http:
            index = http_repository.HttpRepository(f"{web.server.url}/simple/", http_client=http)
            found = [(await index.get_project_page(name)).files[0].filename for name in projects[:2]]
            with pytest.raises(errors.PackageNotFoundError):
                await index.get_project_page("gamma")
            with pytest.raises(errors.SourceRepositoryUnavailable):
                await index.get_project_list()  # which is no source
        return found

    assert asyncio.run(read()) == ["alpha-1.0.tar.gz", "beta-1.0.tar.gz"]
    assert [request.path for request in web.server.requests] == [f"/simple/{name}/" for name in projects] * 3


def test_the_step_of_a_program_that_gives_up_is_made_all_the_same_and_the_next_one_is_on(web):
    honest = web.server.respond

    async def whole():
        release = asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(request):
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result(60)
            return honest(request)

        client = connect(**settings(web))
        async with httpx.AsyncClient(transport=httpx_transport(client, private=False)) as http:
            await http.get(url(web))
            web.server.respond = slow
            asked = [asyncio.create_task(http.get(url(web, name))) for name in ("sports", "weather")]
            await until(lambda: client.journal.state.pending is not None)
            for task in asked:  # one is under way, the other one waits
                task.cancel()
            await asyncio.wait(asked)
            release.set()
            await until(lambda: client.journal.state.step == 3)
            return [(await http.get(url(web, name))).headers["onoff-status"] for name in ("news", "news", "news")]

    assert asyncio.run(whole()) == ["on", "on", "off"]  # one for each that had no answer
    assert [name for name, _ in steps(web)] == ["news", "sports", "weather", "news", "news", "news"]


def test_a_program_that_gives_up_at_once_may_ask_again(web):
    """It was cancelled while the client was opened, which can be done once."""

    async def ask(http):
        hasty = asyncio.create_task(http.get(url(web)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        hasty.cancel()
        await asyncio.wait({hasty})
        return (await http.get(url(web, "sports"))).content

    assert use(web, ask, delay=0.02) == BODIES["sports"]


def test_after_its_end_a_transport_makes_no_step(web):
    async def whole():
        http = program(web)
        async with http:
            await http.get(url(web))
        with pytest.raises(httpx.TransportError):
            await http._transport.handle_async_request(httpx.Request("GET", url(web)))

    asyncio.run(whole())
    transport = httpx_transport(connect(**settings(web)))
    request = httpx.Request("GET", url(web))
    assert transport.handle_request(request).status_code == 200
    transport.close()
    transport.close()
    with pytest.raises(httpx.TransportError, match="not open"):
        transport.handle_request(request)
    assert len(steps(web)) == 2
