"""The monitoring server itself, over a socket of its own."""

import socket
from collections.abc import Awaitable, Callable

import h11
import pytest
import trio
import trio.testing

from jetraft.api.monitor.http import PAGES_BYTES_MAX, MonitorServer
from jetraft.api.monitor.page import Page
from jetraft.api.monitor.steps import SLICE_NS, Steps
from jetraft.store.model.clock import NS_PER_S
from tests.harness.patience import PATIENCE_S


async def asked(server: MonitorServer, *requests: bytes) -> list[bytes]:
    """The status lines of the answers to requests on one connection each."""
    answers = []
    for request in requests:
        stream = await trio.open_tcp_stream("127.0.0.1", server.sock.getsockname()[1])
        async with stream:
            await stream.send_all(request + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b"".join([part async for part in stream])
            answers.append(answer.split(b"\r\n")[0])
    return answers


def served(check: Callable[[MonitorServer], Awaitable[None]]) -> None:
    """Run a check beside a server with a page that works and one that does not."""

    def broken(arguments: dict[str, str]) -> Page:
        raise KeyError(arguments)

    async def main() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        server = MonitorServer(sock, {"/well": lambda _: Page(body=b"{}"), "/broken": broken})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run)
            await check(server)
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_page_with_a_bug_is_an_answer_and_the_others_are_served() -> None:
    async def check(server: MonitorServer) -> None:
        assert await asked(server, b"GET /broken", b"GET /well") == [b"HTTP/1.1 500 ", b"HTTP/1.1 200 "]
        assert server.statistics()["requests"] == 2

    served(check)


def test_only_get_and_head_are_served() -> None:
    async def check(server: MonitorServer) -> None:
        found = await asked(server, b"POST /well", b"HEAD /well", b"DELETE /well")
        assert found == [b"HTTP/1.1 405 ", b"HTTP/1.1 200 ", b"HTTP/1.1 405 "]

    served(check)


async def test_who_asks_for_pages_in_a_loop_leaves_half_of_the_time_to_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def slow(_arguments: dict[str, str]) -> Page:
        autojump_clock.jump(0.5)
        return Page(body=b"{}")

    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = MonitorServer(sock, {"/slow": slow})
        request = h11.Request(method="GET", target="/slow", headers=[("Host", "x")])
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(server._page_in_turn, request)
        assert trio.current_time() - began == pytest.approx(4 * 0.5 + 3 * 0.5)


async def test_a_page_for_which_there_is_no_room_beside_those_that_are_being_sent_is_refused() -> None:
    def large(_arguments: dict[str, str]) -> Steps[Page]:
        yield PAGES_BYTES_MAX // 2 + 1
        return Page(body=b"whole")

    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = MonitorServer(sock, {"/large": twice(large)})
        request = h11.Request(method="GET", target="/large", headers=[("Host", "x")])
        with server._being_sent(Page(body=b"", rest=[bytes(PAGES_BYTES_MAX // 4)])):
            assert (await server._page_in_turn(request)).body == b"whole"
            with server._being_sent(Page(body=bytes(PAGES_BYTES_MAX // 4))):
                assert (await server._page_in_turn(request)).status == 503
        assert (await server._page_in_turn(request)).body == b"whole"


def twice(made: Callable[[dict[str, str]], Steps[Page]]) -> Callable[[dict[str, str]], Steps[Page]]:
    """The same page, written in a slice of its own before it is over."""

    def steps(arguments: dict[str, str]) -> Steps[Page]:
        for written in made(arguments):
            yield written
            until_s = trio.current_time() + 2 * SLICE_NS / NS_PER_S
            while trio.current_time() < until_s:
                yield 0
        return Page(body=b"whole")

    return steps


def test_a_connection_too_many_is_closed() -> None:
    async def check(server: MonitorServer) -> None:
        server.share.places = 1
        first = await trio.open_tcp_stream("127.0.0.1", server.sock.getsockname()[1])
        async with first:
            await first.send_all(b"GET /well HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await first.receive_some()).startswith(b"HTTP/1.1 200")
            assert await asked_raw(server) == b""
        with trio.fail_after(PATIENCE_S):
            while await asked_raw(server, b"GET /well HTTP/1.1\r\nHost: x\r\n\r\n") == b"":
                await trio.lowlevel.checkpoint()  # the first one has left when the server has seen it

    served(check)


async def asked_raw(server: MonitorServer, request: bytes = b"") -> bytes:
    """What a new connection is told; nothing when it is closed."""
    stream = await trio.open_tcp_stream("127.0.0.1", server.sock.getsockname()[1])
    async with stream:
        with trio.fail_after(PATIENCE_S):
            try:
                await stream.send_all(request)
                return bytes(await stream.receive_some())
            except trio.BrokenResourceError:
                return b""
