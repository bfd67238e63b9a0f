"""Turns on what two ends of a leaf node connection have agreed on."""

from collections.abc import Callable

from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.options.compression import AUTO, MODES, Compression, agreed
from jetraft.api.plane._plane import Plane


def negotiate(plane: Plane, link: LeafLink, own: Compression, its: str, line: Callable[[str], bytes]) -> bool:
    """Agree with what the other end says; True when all that follows is compressed. Raises CompressionError.

    The side that connected says what it has chosen before it compresses, the other side after that.
    """
    link.is_negotiated, link.wish = True, own
    link.compression = agreed(own.mode, its)
    if link.compression not in MODES:
        return False
    said = AUTO if own.mode == AUTO else link.compression
    if link.remote is not None:
        plane.write(link.cid, line(said))
    rtts_ns = own.rtts_ns if link.compression == AUTO else ()
    if plane.pack_leaf(link.cid, MODES.index(link.compression), rtts_ns) and link.remote is None:
        plane.write(link.cid, line(said))
    return True


def shown(plane: Plane, link: LeafLink) -> str:
    """How a connection is compressed now, as pages show it."""
    mode = plane.packing(link.cid)
    return link.compression if mode is None else MODES[mode]
