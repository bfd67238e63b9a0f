"""NATS subjects and asset names, as bytes: validity, matching, overlap.

A subject is a list of tokens joined by dots. `*` as a whole token stands for exactly one token, `>` as the whole last
token for one or more. Inside a longer token both are ordinary characters (`foo*` is literal), as in nats-server.
Everything here is linear in the length of its arguments and never fails: malformed input is simply not valid, and
does not match. Source: nats-server server/sublist.go.
"""

import re
from collections.abc import Sequence
from typing import Final

NAME_BYTES_MAX: Final = 255  # JSMaxNameLen: a common limit of file names
ANY_TOKEN: Final = b"*"
ANY_TAIL: Final = b">"
EVERYTHING: Final = b">"

_VALID: Final = re.compile(rb"(?:(?!>\.)[^ \t\r\n\f.]++)(?:\.(?!>\.)[^ \t\r\n\f.]++)*+")
_NAME_FORBIDDEN: Final = frozenset(b" \t\r\n\f.*>\\/\x7f") | frozenset(range(0x20))

# A stream that acknowledges publishes must not capture the servers' own subjects: its acks would feed back. The
# right-hand side lists the exceptions (advisories). Source: stream.go, checkStreamCfg.
_JETSTREAM_SPACES: Final = (b"$JS.>", b"$JSC.>", b"$NRG.>")
_JETSTREAM_EXCEPTION: Final = b"$JS.EVENT.>"
_MAY_BE_RESERVED: Final = (b"$", b"*", b">")  # the start of every subject that can match one of these spaces
_SYSTEM_SPACE: Final = b"$SYS.>"
_SYSTEM_EXCEPTION: Final = b"$SYS.ACCOUNT.>"


def tokens(subject: bytes) -> list[bytes]:
    """The tokens of a subject, empty ones included."""
    return subject.split(b".")


def is_literal(subject: bytes) -> bool:
    """True when no whole token is a wildcard; says nothing about validity."""
    if ANY_TOKEN not in subject and ANY_TAIL not in subject:
        return True
    return not any(token in (ANY_TOKEN, ANY_TAIL) for token in tokens(subject))


def valid_subject(subject: bytes) -> bool:
    """Whether it is valid in a subscription: tokens without white space, none empty, `>` only at the end."""
    return _VALID.fullmatch(subject) is not None


def valid_publish_subject(subject: bytes) -> bool:
    """Whether it is valid in a publish: as in a subscription, without wildcards."""
    return valid_subject(subject) and is_literal(subject)


def matches(pattern: bytes, subject: bytes) -> bool:
    """True when a message published on the literal `subject` reaches a subscription to `pattern`."""
    if pattern == subject:
        return True
    wanted, given = tokens(pattern), tokens(subject)
    if wanted[-1] == ANY_TAIL:
        if len(given) < len(wanted):
            return False
        wanted.pop()
    elif len(wanted) != len(given):
        return False
    return all(want in (ANY_TOKEN, have) for want, have in zip(wanted, given, strict=False))


def matches_any(patterns: Sequence[bytes], subject: bytes) -> bool:
    """Whether one of the patterns matches; True if there are no patterns."""
    return not patterns or any(matches(pattern, subject) for pattern in patterns)


def overlaps(one: bytes, other: bytes) -> bool:
    """True when some literal subject is matched by both patterns. Source: SubjectsCollide."""
    mine, theirs = tokens(one), tokens(other)
    for left, right in zip(mine, theirs, strict=False):
        if ANY_TAIL in (left, right):
            return True
        if left != right and ANY_TOKEN not in (left, right):
            return False
    return len(mine) == len(theirs)


def is_subset(inner: bytes, outer: bytes) -> bool:
    """True when every literal subject matched by `inner` is matched by `outer`. Source: subjectIsSubsetMatch."""
    narrow, wide = tokens(inner), tokens(outer)
    for index, want in enumerate(wide):
        if index == len(narrow):
            return False
        if want == ANY_TAIL:
            return True
        have = narrow[index]
        if have == ANY_TAIL or (want not in (ANY_TOKEN, have)):
            return False
    return len(narrow) == len(wide)


def one_covers_other(one: bytes, other: bytes) -> bool:
    """True when either is a subset of the other; patterns that merely overlap do not count."""
    return is_subset(one, other) or is_subset(other, one)


def valid_asset_name(name: bytes) -> bool:
    """True when a stream, consumer or durable may have this name.

    Refused: empty, white space, control characters, `.`, `*`, `>`, path separators. Length is checked apart, because
    it has an error text of its own. Source: isValidAssetName.
    """
    return bool(name) and _NAME_FORBIDDEN.isdisjoint(name)


def has_path_separator(name: bytes) -> bool:
    """Whether a name from a request subject has a path separator (error texts 10127, 10128)."""
    return b"/" in name or b"\\" in name


def captures_jetstream_space(subject: bytes) -> bool:
    """True when a stream on `subject` needs `no_ack`: it would capture requests to JetStream itself."""
    if subject[:1] not in _MAY_BE_RESERVED:
        return False
    collides = any(overlaps(subject, space) for space in _JETSTREAM_SPACES)
    return collides and not is_subset(subject, _JETSTREAM_EXCEPTION)


def captures_system_space(subject: bytes) -> bool:
    """True when a stream on `subject` needs `no_ack`: it would capture requests to the system account."""
    if subject[:1] not in _MAY_BE_RESERVED:
        return False
    return overlaps(subject, _SYSTEM_SPACE) and not is_subset(subject, _SYSTEM_EXCEPTION)
