"""The protocol in the log (`-V`, `trace`): what clients send and receive, as nats-server writes it, without secrets.

<<- [PUB foo 5]    <<- MSG_PAYLOAD: ["hello"]    ->> [MSG foo 1 5]
"""

from typing import Final

import attrs
import orjson

from jetraft.api.credentials.verdicts import REDACTED
from jetraft.api.credentials.violations import quoted
from jetraft.api.logs.logger import Logger
from jetraft.api.sessions.session import Sessions

FROM_CLIENT: Final = "<<-"
TO_CLIENT: Final = "->>"
SECRETS: Final = frozenset({"pass", "auth_token", "nkey", "sig", "jwt"})
SHOWN: Final = (b"PONG", b"PING", b"MSG ", b"HMSG ")


@attrs.frozen(eq=False)
class ProtocolLog:
    """Writes the lines of all clients."""

    sessions: Sessions
    say: Logger

    def on_line(self, cid: int, line: bytes, payload: bytes | None, *, inbound: bool) -> None:
        """Log a line, and the payload that belongs to it."""
        session = self.sessions.by_cid.get(cid)
        if session is None:
            return
        text = received(line) if inbound else told(line)
        if not text:
            return
        arrow = FROM_CLIENT if inbound else TO_CLIENT
        self.say.trace(f"{session.title} - {arrow} [{text}]")
        options = self.sessions.options
        if payload and options.trace_headers:
            payload = headers_of(line, payload)
        if payload:
            shown = beginning(payload, options.max_traced_msg_len)
            self.say.trace(f"{session.title} - {arrow} MSG_PAYLOAD: [{shown}]")


def beginning(payload: bytes, most: int) -> str:
    """A payload in quotation marks, cut off after as many bytes; 0: whole."""
    return f'{quoted(payload[:most])[:-1]}..."' if 0 < most < len(payload) else quoted(payload)


def headers_of(line: bytes, payload: bytes) -> bytes:
    """The headers alone, of a line that says how long they are; empty for a message without any."""
    if line[:1] not in b"Hh":
        return b""
    return payload[: int(line.split()[-2])].removesuffix(b"\r\n\r\n")


def received(line: bytes) -> str:
    """A client's line: its verb in capitals, and what follows; empty for +OK, which nats-server does not log."""
    verb, _, rest = line.strip().partition(b" ")
    shown = verb.decode(errors="replace").upper()
    if shown == "+OK":
        return ""
    if shown == "CONNECT":
        return f"CONNECT {without_secrets(rest)}"
    return f"{shown} {rest.strip().decode(errors='replace')}".rstrip()


def without_secrets(options: bytes) -> str:
    """The JSON of a CONNECT with nothing in it that proves an identity."""
    try:
        document = orjson.loads(options)
    except orjson.JSONDecodeError:
        return REDACTED
    if not isinstance(document, dict):
        return REDACTED
    shown = {key: REDACTED if key.lower() in SECRETS else value for key, value in document.items()}
    return orjson.dumps(shown).decode()


def told(line: bytes) -> str:
    """The line that a client is told; empty where nats-server logs none: INFO, and what is no line of the protocol."""
    text = line.strip().decode(errors="replace")
    if line.startswith(b"+OK"):
        return "OK"
    if line.startswith(b"-ERR '"):
        return f"-ERR {text[6:-1]}"
    return text if line.startswith(SHOWN) else ""
