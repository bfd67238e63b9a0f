"""The checksums that nats-server keeps of its files: what each is over, and with which key. Pure.

    what                      over                                               key: sha256 of
    record of msgs/<n>.blk    sequence, time, subject, header, body              <stream>-<n>
    msgs/index.db             everything before its last 8 bytes                 <stream>
    meta.inf                  all of it; the sum in hexadecimal is meta.sum      <stream>, or <stream>/<consumer>

All are HighwayHash-64. A record's lengths of parts are outside: where the subject of a message ends that has no header,
where the header ends of one that has. `o.dat` has no sum. Source: filestore.go of nats-server 2.14 (writeMsgRecord,
recoverFullState, writeStreamMeta, writeConsumerMeta), and every sum of an archive that 2.14.6 wrote.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from jetraft.cluster.backup._highway import highway_hash
from jetraft.store.s2.framing import CorruptArchiveError

SUM_BYTES: Final = 8
HDR_LENGTH_BYTES: Final = 4  # between subject and header; not in the sum
CONFIGURATION_BYTES_MAX: Final = 8 << 20
WAITING_MAX: Final = 16  # the sum comes right behind what it is of
_SEQ_AND_TS: Final = slice(4, 20)
_SUBJECT_AT: Final = 22


class BlockSums:
    """The sums of the records of one block."""

    def __init__(self, stream: str, block: int) -> None:
        self._key = _key(f"{stream}-{block}")

    def holds(self, record: memoryview, subject_bytes: int, *, has_hdr: bool) -> bool:
        """Whether the record is as it was written; its lengths must be known to fit into it."""
        subject_end = _SUBJECT_AT + subject_bytes
        rest = record[subject_end + HDR_LENGTH_BYTES * has_hdr : -SUM_BYTES]
        sum_of = highway_hash(self._key, record[_SEQ_AND_TS], record[_SUBJECT_AT:subject_end], rest)
        return sum_of == record[-SUM_BYTES:]


def index_holds(stream: str, data: bytes) -> bool:
    """Whether an `index.db` is as it was written."""
    return highway_hash(_key(stream), data[:-SUM_BYTES]) == data[-SUM_BYTES:]


class Configurations:
    """Configurations that wait for their sum, a file of its own behind them. The stream's has an empty name."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._waiting: dict[bytes, bytes] = {}

    @property
    def are_none(self) -> bool:
        """True when each has been proven."""
        return not self._waiting

    def put(self, consumer: bytes, data: bytes) -> None:
        """Take a configuration. Raises CorruptArchiveError, before much memory is taken."""
        if len(data) > CONFIGURATION_BYTES_MAX or len(self._waiting) >= WAITING_MAX:
            raise CorruptArchiveError("a configuration that is too large, or without a checksum")
        self._waiting[consumer] = data

    def prove(self, consumer: bytes, hexadecimal: bytes) -> None:
        """Take the sum of one. Raises CorruptArchiveError."""
        data = self._waiting.pop(consumer, None)
        owner = self._stream.encode() + (b"/" + consumer if consumer else b"")
        if data is None or highway_hash(sha256(owner).digest(), data).hex().encode() != hexadecimal.strip():
            raise CorruptArchiveError(f"the checksum of the configuration of {owner[:80]!r} is wrong")


def _key(name: str) -> bytes:
    return sha256(name.encode()).digest()
