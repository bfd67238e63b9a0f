"""The monitoring server itself, over a socket of its own."""

import socket
from collections.abc import Awaitable, Callable

import trio

from jetraft.api.monitor.http import MonitorServer, Page


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
        assert server.statistics() == {"requests": 2}

    served(check)


def test_only_get_and_head_are_served() -> None:
    async def check(server: MonitorServer) -> None:
        found = await asked(server, b"POST /well", b"HEAD /well", b"DELETE /well")
        assert found == [b"HTTP/1.1 405 ", b"HTTP/1.1 200 ", b"HTTP/1.1 405 "]

    served(check)
