"""A hostile web server behind `resolver: URL(...)` holds the client whose account is looked up, and nobody else."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from jetraft.api.auth.token_source import AccountLookupError
from jetraft.api.auth.web_lookup import WebSource
from tests.harness.ports import HOST

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
DEADLINE_S = 0.5
STEP_S = 0.012  # processor time that one answer may take at once
TRIES = 3


class Meter(trio.abc.Instrument):
    """The longest step of all tasks, in seconds of processor time."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._began = time.thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        del task
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        del task
        self.longest = max(self.longest, time.thread_time() - self._began)


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that gives each connection the next answer, whatever it asks; yields its URL."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            for answer in answers:
                client, _ = listener.accept()
                with client:
                    client.recv(1 << 16)
                    try:
                        client.sendall(answer)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://{HOST}:{listener.getsockname()[1]}/"
        thread.join()


async def fetched(url: str) -> tuple[bytes | str, float]:
    """The token, or why there is none; and the longest step."""
    source = WebSource(url, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), DEADLINE_S)
    meter = Meter()
    trio.lowlevel.add_instrument(meter)
    try:
        return await source.fetch("K"), meter.longest
    except AccountLookupError as error:
        return str(error), meter.longest
    finally:
        trio.lowlevel.remove_instrument(meter)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(CHUNKED + b"1\r\nx\r\n" * 500_000, "deadline exceeded", id="chunks of a byte"),
        pytest.param(b"HTTP/1.1 100 C\r\n\r\n" * 100_000, "too many 1xx", id="informational answers"),
        pytest.param(OK + b"a:b\r\n" * 12_000 + b"\r\n", "malformed", id="a head of many lines"),
        pytest.param(CHUNKED + b"0\r\n" + b"a:b\r\n" * 12_000 + b"\r\n", "malformed", id="a trailer of many lines"),
        pytest.param(OK + b"a" * 1_000_000, "malformed", id="a head without an end"),
        pytest.param(CHUNKED + b"ffffff\r\n" + b"x" * 2_000_000, "longer than", id="a body without an end"),
        pytest.param(b"", "malformed", id="nothing"),
        pytest.param(OK + b"Content-Length: 5\r\n\r\nx", "malformed", id="less than it says"),
    ],
)
async def test_an_answer_is_read_in_small_steps_up_to_a_bound(answer: bytes, said: str) -> None:
    longest = []
    with answering(*[answer] * TRIES) as url:
        for _ in range(TRIES):
            found, step = await fetched(url)
            assert isinstance(found, str)
            assert said in found
            longest.append(step)
    assert min(longest) <= STEP_S


async def test_an_answer_in_pieces_is_taken() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\n\r\n" * 5
    with answering(hints + CHUNKED + b"1\r\nx\r\n" * 100 + b"0\r\n\r\n") as url:
        assert (await fetched(url))[0] == b"x" * 100


@pytest.mark.parametrize("location", ["file:///etc/passwd", "gopher://127.0.0.1/", "http://[", "http://[::1", "//:x/"])
async def test_a_redirect_leads_to_web_servers_only(location: str) -> None:
    head = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    with answering(head.encode()) as url:
        found, _ = await fetched(url)
    assert isinstance(found, str)
    assert "unsupported protocol scheme" in found or "invalid URL" in found or "failed to parse Location" in found
