"""Subject transforms: how a subject that matches one pattern becomes another, `orders.*` to `eu.{{wildcard(1)}}`.

A transform is parsed here, with nats-server's texts for what is wrong, and carried out in api/plane/_transforms.pyx.
Mappings of accounts and imports use it. Source: nats-server server/subject_transform.go.

Pure.
"""

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import attrs

from jetraft.store.model.subject import ANY_TAIL, ANY_TOKEN, tokens


class PieceKind(IntEnum):
    """The meaning of a token of a destination; the values are `PieceKind` of api/plane/_transforms.pxd."""

    LITERAL = 0
    WILDCARD = 1
    PARTITION = 2
    SPLIT_FROM_LEFT = 3
    SPLIT_FROM_RIGHT = 4
    SLICE_FROM_LEFT = 5
    SLICE_FROM_RIGHT = 6
    SPLIT = 7
    LEFT = 8
    RIGHT = 9
    RANDOM = 10


@attrs.frozen(kw_only=True, slots=True)
class TransformPiece:
    """A token of a destination. `sources` are positions of tokens of the subject that is transformed."""

    kind: PieceKind = PieceKind.LITERAL
    text: bytes = b""  # the token itself, or what splits one
    number: int = 0
    sources: tuple[int, ...] = ()


@attrs.frozen(kw_only=True, slots=True)
class Transform:
    """From subjects that match `source`. The tokens from position `tail` on are appended as they are (None: no `>`)."""

    source: bytes
    destination: bytes
    pieces: tuple[TransformPiece, ...]
    tail: int | None = None


class TransformError(ValueError):
    """A transform that cannot be; the text is nats-server's."""


BAD_SUBJECT: Final = "invalid subject"
_INVALID: Final = "invalid mapping destination"
_OUT_OF_RANGE: Final = f"{_INVALID}: wildcard index out of range"
_TOO_FEW: Final = f"{_INVALID}: not enough arguments passed to the function"
_TOO_MANY: Final = f"{_INVALID}: too many arguments passed to the function"
_WRONG: Final = f"{_INVALID}: function argument is invalid or in the wrong format"
_UNKNOWN: Final = f"{_INVALID}: unknown function"
_NOT_FOR_IMPORTS: Final = f"{_INVALID}: the only mapping function allowed for import transforms is {{{{Wildcard()}}}}"
_NOT_ALL_USED: Final = f"{_INVALID}: not using all of the token wildcard(s)"
_NOT_A_SUBJECT: Final = f"{_INVALID}: invalid transform"

_CALL: Final = re.compile(rb"\{\{\s*([A-Za-z]+)\s*\((.*)\)\s*\}\}")
_COMMA: Final = re.compile(rb",\s*")
_REFERENCE: Final = re.compile(rb"\$[+-]?[0-9]+")
_PLACEHOLDER: Final = re.compile(rb"\$[1-9].*|\{\{\s*[wW]ildcard\s*\([^,]+\)\s*\}\}")
_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,9}")
_BLANK: Final = re.compile(rb"[\t\n\f\r ]")
_FUNCTIONS: Final = {  # with the least and the most arguments
    b"wildcard": (PieceKind.WILDCARD, 1, 1),
    b"partition": (PieceKind.PARTITION, 1, None),
    b"random": (PieceKind.RANDOM, 1, 1),
    b"split": (PieceKind.SPLIT, 2, 2),
    b"splitfromleft": (PieceKind.SPLIT_FROM_LEFT, 2, 2),
    b"splitfromright": (PieceKind.SPLIT_FROM_RIGHT, 2, 2),
    b"slicefromleft": (PieceKind.SLICE_FROM_LEFT, 2, 2),
    b"slicefromright": (PieceKind.SLICE_FROM_RIGHT, 2, 2),
    b"left": (PieceKind.LEFT, 2, 2),
    b"right": (PieceKind.RIGHT, 2, 2),
}
_WITHOUT_WILDCARDS: Final = (PieceKind.LITERAL, PieceKind.PARTITION, PieceKind.RANDOM)


def parse_transform(source: bytes, destination: bytes, *, is_import: bool = False) -> Transform:
    """The transform from one subject to another. Raises TransformError.

    That of an import can be reversed: it uses every wildcard of its source, and no other function.
    """
    wanted, given = tokens(source), tokens(destination)
    for subject in (wanted, given):
        if b"" in subject or ANY_TAIL in subject[:-1]:
            raise TransformError(BAD_SUBJECT)
    if ANY_TOKEN in given or (wanted[-1] == ANY_TAIL) != (given[-1] == ANY_TAIL):
        raise TransformError(BAD_SUBJECT)
    stars = [at for at, token in enumerate(wanted) if token == ANY_TOKEN]
    wild = bool(stars) or wanted[-1] == ANY_TAIL
    pieces = [_piece(token, stars, wild=wild, is_import=is_import) for token in given if token != ANY_TAIL]
    if is_import and {place for piece in pieces for place in piece.sources} != set(stars):
        raise TransformError(f"{_NOT_ALL_USED} in {destination.decode()}")
    tail = len(wanted) - 1 if wanted[-1] == ANY_TAIL else None
    return Transform(source=source, destination=destination, pieces=tuple(pieces), tail=tail)


def constant(source: bytes, destination: bytes) -> Transform:
    """The transform from a subject to one text, whatever that looks like."""
    return Transform(source=source, destination=destination, pieces=(TransformPiece(text=destination),))


def check_destination(destination: bytes) -> None:
    """Raise TransformError for what is no destination of a mapping, whatever its source is."""
    for token in tokens(destination):
        if _is_call(token):
            _parse(token)
        elif not token or _BLANK.search(token):
            raise TransformError(_NOT_A_SUBJECT)


def reverse(transform: Transform) -> Transform:
    """The way back of a transform of an import."""
    stars = [at for at, token in enumerate(tokens(transform.source)) if token == ANY_TOKEN]
    order = [piece.sources[0] for piece in transform.pieces if piece.sources]
    back = tokens(transform.source)
    for place in stars:
        back[place] = b"$%d" % (order.index(place) + 1)
    return parse_transform(with_wildcards(transform.destination), b".".join(back))


def with_references(subject: bytes) -> bytes:
    """`foo.*.*` becomes `foo.$1.$2`."""
    count = 0
    result = tokens(subject)
    for at, token in enumerate(result):
        if token == ANY_TOKEN:
            count += 1
            result[at] = b"$%d" % count
    return b".".join(result)


def with_wildcards(subject: bytes) -> bytes:
    """`foo.$2.{{wildcard(1)}}` becomes `foo.*.*`."""
    return b".".join(ANY_TOKEN if _PLACEHOLDER.fullmatch(token) else token for token in tokens(subject))


def _is_call(token: bytes) -> bool:
    return len(token) > len("{{}}") and token.startswith(b"{{") and token.endswith(b"}}")


def _piece(token: bytes, stars: Sequence[int], *, wild: bool, is_import: bool) -> TransformPiece:
    """A token of a destination, with positions in the place of the numbers of wildcards."""
    piece = _parse(token)
    if is_import and piece.kind not in (PieceKind.LITERAL, PieceKind.WILDCARD):
        raise TransformError(f"{_NOT_FOR_IMPORTS} in {token.decode()}")
    if not wild:
        if piece.kind not in _WITHOUT_WILDCARDS:
            raise TransformError(f"{_OUT_OF_RANGE} in {token.decode()}")
        return attrs.evolve(piece, sources=(0,) * len(piece.sources))
    for number in piece.sources:
        if number > len(stars):
            raise TransformError(f"{_OUT_OF_RANGE} in {token.decode()}: [{number}]")
    return attrs.evolve(piece, sources=tuple(stars[number - 1] if number > 0 else 0 for number in piece.sources))


def _parse(token: bytes) -> TransformPiece:
    """The meaning of a token, with numbers of wildcards as `sources`."""
    if _REFERENCE.fullmatch(token):
        return TransformPiece(kind=PieceKind.WILDCARD, text=token, sources=(_integer(token, token[1:]),))
    if not _is_call(token):
        return TransformPiece(text=token)
    call = _CALL.fullmatch(token)
    name = call[1].lower() if call else b""
    if call is None or name not in _FUNCTIONS:
        raise TransformError(f"{_UNKNOWN} in {token.decode()}")
    arguments = _COMMA.split(call[2])
    kind, least, most = _FUNCTIONS[name]
    if len(arguments) < least or arguments == [b""]:
        raise TransformError(f"{_TOO_FEW} in {token.decode()}")
    if most is not None and len(arguments) > most:
        raise TransformError(f"{_TOO_MANY} in {token.decode()}")
    if kind is PieceKind.SPLIT:
        if b" " in arguments[1] or b"." in arguments[1]:
            raise TransformError(f"{_WRONG} in {token.decode()}")
        return TransformPiece(kind=kind, text=arguments[1], sources=(_integer(token, arguments[0]),))
    numbers = tuple(_integer(token, argument) for argument in arguments)
    if kind is PieceKind.WILDCARD:
        return TransformPiece(kind=kind, text=token, sources=numbers)
    if kind in (PieceKind.PARTITION, PieceKind.RANDOM):
        return TransformPiece(kind=kind, text=token, number=numbers[0], sources=numbers[1:])
    return TransformPiece(kind=kind, text=token, number=numbers[1], sources=numbers[:1])


def _integer(token: bytes, argument: bytes) -> int:
    digits = argument.strip(b" ")
    if not _INTEGER.fullmatch(digits):
        raise TransformError(f"{_WRONG} in {token.decode()}")
    return int(digits)
