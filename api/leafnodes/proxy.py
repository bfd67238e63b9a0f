"""Reaches a hub through a proxy for HTTP: CONNECT, and what it answers. Behind that, bytes are the hub's.

A proxy is read no further than the end of its answer: a hub that speaks first may come in the same packet.
"""

import base64
import socket
from http import HTTPStatus
from typing import Final

import h11
import trio

from jetraft.api.options.leafnodes import LeafProxy, ProxyError, RemoteUrl

ANSWER_BYTES_MAX: Final = 16 * 1024
END: Final = b"\r\n\r\n"


def headers_for(proxy: LeafProxy, url: RemoteUrl) -> list[tuple[str, str]]:
    """The headers of CONNECT; they have a secret."""
    given = f"{proxy.username}:{proxy.password.offered_by_default}".encode()
    basic = f"Basic {base64.b64encode(given).decode()}"
    return [("Host", url.address), *([("Proxy-Authorization", basic)] if proxy.username else [])]


async def through(proxy: LeafProxy, url: RemoteUrl) -> socket.socket:
    """A socket that leads to the hub. Raises OSError, or ProxyError; the caller limits the time."""
    stream = await trio.open_tcp_stream(proxy.host, proxy.port)
    sock = stream.socket
    try:
        await _connect(stream, h11.Request(method="CONNECT", target=url.address, headers=headers_for(proxy, url)))
    except BaseException:
        sock.close()
        raise
    return socket.socket(fileno=sock.detach())


async def _connect(stream: trio.SocketStream, request: h11.Request) -> None:
    """Send CONNECT, and read that it is done. Raises ProxyError."""
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=ANSWER_BYTES_MAX)
    await stream.send_all((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
    http.receive_data(await _head(stream.socket))
    try:
        answer = http.next_event()
    except h11.RemoteProtocolError as error:
        raise ProxyError(f"failed to read proxy response: {error}") from error
    if not isinstance(answer, h11.Response):
        raise ProxyError("proxy CONNECT failed: no answer")
    if answer.status_code != HTTPStatus.OK:
        raise ProxyError(f"proxy CONNECT failed: {answer.status_code} {answer.reason.decode('latin-1')}")


async def _head(sock: trio.socket.SocketType) -> bytes:
    """The bytes up to the end of the headers, and nothing behind it. Raises ProxyError."""
    head = b""
    while not head.endswith(END):
        seen = await sock.recv(ANSWER_BYTES_MAX - len(head), socket.MSG_PEEK)
        at = (head[-len(END) + 1 :] + seen).find(END)
        taken = len(seen) if at < 0 else at + len(END) - len(head[-len(END) + 1 :])
        if not seen or len(head) + taken >= ANSWER_BYTES_MAX:
            raise ProxyError("failed to read proxy response: unexpected EOF")
        head += await sock.recv(taken)
    return head
