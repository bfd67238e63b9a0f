"""Pages of every server of a cluster, by requests of the system account, or of its monitoring ports.

How many servers there are is unknown before they answer: the answers end when none came for a while.
"""

import asyncio
import http.client
import json
import time
from typing import Annotated, Any, Final
from urllib.parse import urlencode, urlsplit

import attrs
import nats.errors
import typer

from jetraft.api.cli.client.connection import CommandConnection, parsed
from jetraft.api.cli.client.errors import CommandError, UsageError
from jetraft.api.cli.client.output import clean

QUIET_S: Final = 1.0  # servers answer within milliseconds; one that is busy takes a turn, of 20 ms at most
SERVERS_MAX: Final = 10_000
PAGE_BYTES_MAX: Final = 64 << 20  # of a monitor's page; 1,024 streams in full are 2 MB
Monitor = Annotated[
    str | None,
    typer.Option("--monitor", metavar="URL", help="ask monitoring ports instead, comma-separated: http://n1:8222"),
]


@attrs.frozen(kw_only=True)
class ServerPage:
    """An answer, and when it came."""

    server: dict[str, Any]  # name, host, id, cluster, version, time
    data: dict[str, Any]
    asked_at_s: float  # by this machine's clock
    rtt_s: float

    @property
    def name(self) -> str:
        """The server's."""
        return str(self.server.get("name", "?"))


async def system_pages(
    at: CommandConnection, page: str, body: dict[str, Any] | None = None, monitor: str | None = None
) -> list[ServerPage]:
    """Each server's answer, by name; `page` is VARZ, JSZ, HEALTHZ or empty for STATSZ. Raises CommandError.

    With `monitor` the pages of these URLs, by HTTP; then a server that does not answer is an error.
    """
    if monitor:
        urls = [url.strip() for url in monitor.split(",") if url.strip()]
        got = [await asyncio.to_thread(monitor_page, url, page, body or {}, at.timeout_s) for url in urls]
        return sorted(got, key=lambda each: each.name)
    inbox = at.nc.new_inbox()
    found: list[ServerPage] = []
    answers = await at.nc.subscribe(inbox)
    subject = f"$SYS.REQ.SERVER.PING.{page}".rstrip(".")
    asked_at_s, started = time.time(), time.monotonic()
    await at.nc.publish(subject, json.dumps(body or {}).encode(), inbox)
    while len(found) < SERVERS_MAX:
        try:
            wait_s = QUIET_S if found else at.timeout_s
            message = await at.unless_refused(answers.next_msg(timeout=wait_s))
        except (nats.errors.TimeoutError, TimeoutError):
            break
        if (message.headers or {}).get("Status") == "503":
            break
        answer = parsed(message.data)
        data = answer.get("data") if "data" in answer else answer.get("statsz")
        if isinstance(answer.get("server"), dict) and isinstance(data, dict):
            rtt_s = time.monotonic() - started
            found.append(ServerPage(server=answer["server"], data=data, asked_at_s=asked_at_s, rtt_s=rtt_s))
    await answers.unsubscribe()
    if not found:
        raise CommandError("no server answers: log in as a user of the system account (--user, --creds, --context)")
    return sorted(found, key=lambda each: each.name)


def monitor_page(url: str, page: str, body: dict[str, Any], timeout_s: float) -> ServerPage:
    """A page of a monitor, and the server's name from its VARZ. Raises CommandError."""
    asked_at_s, started = time.time(), time.monotonic()
    varz = fetched(url, "varz", timeout_s)
    rtt_s = time.monotonic() - started
    server = {
        "name": varz.get("server_name"),
        "host": varz.get("host"),
        "ver": varz.get("version"),
        "cluster": (varz.get("cluster") or {}).get("name", ""),
        "time": varz.get("now"),
    }
    query = urlencode({key: str(value).lower() for key, value in body.items()})
    data = varz if page in ("", "VARZ") else fetched(url, page.lower() + (f"?{query}" if query else ""), timeout_s)
    return ServerPage(server=server, data=data, asked_at_s=asked_at_s, rtt_s=rtt_s)


def fetched(url: str, path: str, timeout_s: float) -> dict[str, Any]:
    """The JSON of a page, whatever its status is. Raises CommandError."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        raise UsageError(f"--monitor {clean(url)}: write http://HOST:8222") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise UsageError("--monitor: write http://HOST:8222")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, port, timeout=timeout_s)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/{path}")
        return parsed(connection.getresponse().read(PAGE_BYTES_MAX))
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CommandError(f"monitor {clean(url)}: {reason}: start the server with -m, or check the URL") from None
    finally:
        connection.close()
