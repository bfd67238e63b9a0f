"""Numbers that the plane gives lines, and what nats-server says where something is wrong."""

from typing import Final

from jetraft.store.model.clock import NS_PER_S

CONNECT: Final = 1  # LeafText of api/plane/_leaf_parser.pxd
INFO: Final = 2
ERR: Final = 3
EARLY: Final = 4
LOOP_CHECK: Final = 5
DENIALS: Final = {6: ("Subscription to", "Subscription"), 7: ("Publish to", "Publish")}

LOOP_DELAY_NS: Final = 30 * NS_PER_S  # until a server connects again where that made a loop
VIOLATION_DELAY_NS: Final = 30 * NS_PER_S
CLIENT_ON_LEAF_PORT: Final = "attempted to connect to leaf node port"
TOO_MANY: Final = "maximum account active connections exceeded"
SAME_CLUSTER: Final = "remote leafnode has same cluster name"


def err(text: str) -> bytes:
    """A line with an error."""
    return f"-ERR '{text}'\r\n".encode("utf-8", "replace")


def version_of(text: str) -> tuple[int, int, int]:
    """The numbers of a version; zeros where it is none."""
    parts = text.removeprefix("v").partition("-")[0].split(".")
    if len(parts) != 3 or not all(part.isdecimal() and len(part) < 6 for part in parts):  # noqa: PLR2004
        return (0, 0, 0)
    return int(parts[0]), int(parts[1]), int(parts[2])
