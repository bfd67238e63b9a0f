"""Subject transforms carried out on one subject at a time: what a stream does with the subjects of its messages.

The data plane does the same to the messages of a whole turn, compiled (api/plane/_transforms.pyx); this is for layers
below it, and for streams that have a transform. Source: nats-server server/subject_transform.go.

Pure: what `random` draws is handed in.
"""

from collections.abc import Callable
from typing import Final

from jetraft.store.model.mapping.transforms import PieceKind, Transform, TransformPiece, parse_transform
from jetraft.store.model.subject import EVERYTHING, matches, tokens

SEPARATOR: Final = b"."
SUBJECT_BYTES_MAX: Final = 0xFFFF  # a record says how long its subject is in 16 bits

_FNV_START: Final = 2166136261
_FNV_PRIME: Final = 16777619
_32_BITS: Final = 0xFFFF_FFFF


def transform_between(source: str, destination: str) -> Transform | None:
    """The transform that a configuration states; None without a destination. Raises TransformError."""
    return parse_transform(source.encode() or EVERYTHING, destination.encode()) if destination else None


def transformed(transform: Transform, subject: bytes, draw: Callable[[int], int]) -> bytes | None:
    """The subject that one becomes; None when it does not match the source.

    `draw(n)` returns a number below n, for the function `random`.
    """
    if not matches(transform.source, subject):
        return None
    given = tokens(subject)
    made = [_made(piece, subject, given, draw) for piece in transform.pieces]
    if transform.tail is not None:
        made += given[transform.tail :]
    return SEPARATOR.join(made)


def _made(piece: TransformPiece, subject: bytes, given: list[bytes], draw: Callable[[int], int]) -> bytes:
    """One token of the destination, or several."""
    number = piece.number
    if piece.kind is PieceKind.LITERAL:
        return piece.text
    if piece.kind is PieceKind.PARTITION:
        hashed = b"".join(given[at] for at in piece.sources) if piece.sources else subject
        return b"%d" % (_fnv32a(hashed) % number if number > 0 else 0)
    if piece.kind is PieceKind.RANDOM:
        return b"%d" % (draw(number) if number > 0 else 0)
    token = given[piece.sources[0]]
    if piece.kind is PieceKind.SPLIT:
        return _split(token, piece.text)
    if piece.kind is PieceKind.WILDCARD or number <= 0 or number >= len(token):
        return token
    return _cut(piece.kind, token, number)


def _cut(kind: PieceKind, token: bytes, number: int) -> bytes:
    """A token cut at a place inside it."""
    match kind:
        case PieceKind.LEFT:
            return token[:number]
        case PieceKind.RIGHT:
            return token[-number:]
        case PieceKind.SPLIT_FROM_LEFT:
            return token[:number] + SEPARATOR + token[number:]
        case PieceKind.SPLIT_FROM_RIGHT:
            return token[:-number] + SEPARATOR + token[-number:]
        case PieceKind.SLICE_FROM_LEFT:
            return _slices(token, 0, number)
        case _:
            return _slices(token, len(token) % number, number)


def _slices(token: bytes, first: int, size: int) -> bytes:
    """A token in slices of a size; what does not fill one comes first when `first` is its length."""
    slices = [token[:first]] if first else []
    return SEPARATOR.join([*slices, *(token[at : at + size] for at in range(first, len(token), size))])


def _split(token: bytes, delimiter: bytes) -> bytes:
    """A token split at each delimiter. As in nats-server, a part is followed by a dot when the next is not empty."""
    if not delimiter:
        return _slices(token, 0, 1)
    parts = token.split(delimiter)
    made = parts[0]
    for at, part in enumerate(parts[1:], 1):
        is_behind_an_empty_first = at == 1 and not parts[0]
        made += SEPARATOR + part if part and not is_behind_an_empty_first else part
    return made


def _fnv32a(data: bytes) -> int:
    found = _FNV_START
    for byte in data:
        found = ((found ^ byte) * _FNV_PRIME) & _32_BITS
    return found
