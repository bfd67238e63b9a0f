"""Texts for a client, and for the log, when it does what its permissions do not allow; nats-server's texts."""

from typing import Final

from jetraft.store.model.gosyntax import go_quote

PUBLISH: Final = 0  # the values of Violation in api/plane/_types.pxd
REPLY: Final = 1
SUBSCRIBE: Final = 2
TOKENS: Final = 3
NOT_UTF8: Final = ("\udc80", "\udcff")  # what bytes become that are no text


def quoted(raw: bytes) -> str:
    """Bytes in double quotes as Go's %q writes them."""
    chars = raw.decode("utf-8", "surrogateescape")
    if chars.isascii() and chars.isprintable() and '"' not in chars and "\\" not in chars:
        return f'"{chars}"'
    first, last = NOT_UTF8
    parts = [f"\\x{ord(char) - 0xDC00:02x}" if first <= char <= last else go_quote(char)[1:-1] for char in chars]
    return f'"{"".join(parts)}"'


def texts(kind: int, subject: bytes, queue: bytes, sid: bytes) -> tuple[str, str]:
    """The text of the -ERR and what the log says."""
    shown = quoted(subject)
    if kind == PUBLISH:
        return f"Permissions Violation for Publish to {shown}", f"Publish Violation - Subject {shown}"
    if kind == REPLY:
        return f"Permissions Violation for Publish with Reply of {shown}", f"Publish Violation - Reply {shown}"
    identity = sid.decode("utf-8", "replace")
    if kind == TOKENS:
        said = f"Permissions Violation for Subscription to {shown}, too many tokens"
        return said, f"Subscription Violation Too Many Tokens - Subject {shown}, SID {identity}"
    said, logged = f"Permissions Violation for Subscription to {shown}", f"Subscription Violation - Subject {shown}"
    if not queue:
        return said, f"{logged}, SID {identity}"
    return f"{said} using queue {quoted(queue)}", f"{logged}, Queue: {quoted(queue)}, SID {identity}"
