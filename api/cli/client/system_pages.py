"""Pages of every server of a cluster, by requests of the system account.

How many servers there are is unknown before they answer: the answers end when none came for a while.
"""

import json
import time
from typing import Any, Final

import attrs
import nats.errors

from jetraft.api.cli.client.connection import CommandConnection, parsed
from jetraft.api.cli.client.errors import CommandError

QUIET_S: Final = 1.0  # servers answer within milliseconds; one that is busy takes a turn, of 20 ms at most
SERVERS_MAX: Final = 10_000


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


async def system_pages(at: CommandConnection, page: str, body: dict[str, Any] | None = None) -> list[ServerPage]:
    """What each server answers, by name; `page` is VARZ, JSZ, HEALTHZ or empty for STATSZ. Raises CommandError."""
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
