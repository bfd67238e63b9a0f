"""Compression of leaf node connections: what the configuration wishes, and what two ends agree on. Pure.

    hub INFO (its wish) >   < INFO of the leaf node (what it chose)   from here on compressed:   INFO >   < CONNECT

The words and rules are those of nats-server 2.15.1.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from jetraft.store.model.clock import NS_PER_S

NOT_SUPPORTED: Final = "not supported"
OFF: Final = "off"
ACCEPT: Final = "accept"
AUTO: Final = "s2_auto"
FAST: Final = "s2_fast"
MODES: Final = ("s2_uncompressed", FAST, "s2_better", "s2_best", AUTO)  # by their number in the plane (Packing)
WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("not supported", "not_supported"), NOT_SUPPORTED),
    **dict.fromkeys(("off", "disabled", "false"), OFF),
    **dict.fromkeys(("on", "enabled", "true", "auto", AUTO), AUTO),
    **dict.fromkeys(("fast", FAST), FAST),
    **dict.fromkeys(("better", "s2_better"), "s2_better"),
    **dict.fromkeys(("best", "s2_best"), "s2_best"),
    "accept": ACCEPT,
    "s2_uncompressed": "s2_uncompressed",
}
RTTS_NS: Final = tuple(ms * NS_PER_S // 1000 for ms in (10, 50, 100))  # nats-server's
RTTS_MAX: Final = 4


class CompressionError(ValueError):
    """A wish that makes no sense, or one that this server does not know; the text is nats-server's."""


@attrs.frozen(kw_only=True)
class Compression:
    """The wish of one end. `rtts_ns`: up to which round trip each of MODES is used with AUTO; 0: it is not."""

    mode: str = AUTO
    rtts_ns: tuple[int, ...] = RTTS_NS

    @property
    def compresses(self) -> bool:
        """Whether this end asks for it."""
        return self.mode in MODES


def wish_of(word: str, rtts_ns: tuple[int, ...], shown: str) -> Compression:
    """The wish of a word of the configuration; none: AUTO. `shown` is the list as written. Raises CompressionError."""
    mode = WORDS.get(word.lower()) if word else AUTO
    if mode is None:
        raise CompressionError(f'unsupported compression mode "{word}"')
    if mode != AUTO or not rtts_ns:
        return Compression(mode=mode)
    kept: list[int] = []
    for rtt_ns in (max(given, 0) for given in rtts_ns):
        if rtt_ns and any(rtt_ns < before for before in kept):
            raise CompressionError(f"RTT threshold values {shown} should be in ascending order")
        kept.append(rtt_ns)
    while kept and kept[-1] == 0:
        kept.pop()
    if len(kept) > RTTS_MAX:
        raise CompressionError(f'compression mode "{word}" should have no more than 4 RTT thresholds: {shown}')
    if not kept:
        raise CompressionError(f'compression mode "{word}" requires at least one RTT threshold')
    return Compression(mode=AUTO, rtts_ns=tuple(kept))


def agreed(own: str, its: str) -> str:
    """The mode that this end uses: one of MODES, OFF or NOT_SUPPORTED. Raises CompressionError."""
    if own in (OFF, NOT_SUPPORTED):
        return own
    if its in ("", OFF, NOT_SUPPORTED):
        return its or NOT_SUPPORTED
    if its == ACCEPT:
        return OFF if own == ACCEPT else own
    if its not in MODES:
        raise CompressionError(f"unsupported compression mode {_quoted(its)}")
    if own == ACCEPT:
        return FAST if its == AUTO else its
    return own


def _quoted(word: str) -> str:
    return '"' + "".join(letter for letter in word if letter.isprintable() and letter != '"') + '"'


DEFAULT: Final = Compression()
