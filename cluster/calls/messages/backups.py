"""Questions of a node that restores a stream to others (cluster/requests/backup_transfers.py); JSON, but for steps.

    backup.free:   the configuration, judged as a client's -> the one that would be kept
    backup.create: the marked configuration, likewise -> CreatedAnswer
    backup.finish: FinishQuestion -> nothing             backup.remove: RemoveQuestion -> nothing
    backup.fill:   StepBatch (cluster/backup/step_batch.py) -> nothing

An answer is 0 and its JSON, or 1 and a Refusal, which is an error of the catalogue.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.messages import Message, json_object, number, protocol, text
from jetraft.store.model.limits import NAME_BYTES_MAX

FREE: Final = b"backup.free"
CREATE: Final = b"backup.create"
FINISH: Final = b"backup.finish"
REMOVE: Final = b"backup.remove"
FILL: Final = b"backup.fill"
CONFIG_BYTES_MAX: Final = 64 << 20  # as the request that brings it
DESCRIPTION_CHARS_MAX: Final = 64 << 10
CODE_MAX: Final = 65_535

_DONE, _REFUSED = b"\x00", b"\x01"


@protocol("the end of a restore", bytes_max=CONFIG_BYTES_MAX, as_json=True)
@attrs.frozen(kw_only=True, slots=True)
class FinishQuestion(Message):
    """The stream is whole: this is its configuration from now on."""

    incarnation: int = attrs.field(metadata=number())
    config: dict[str, Any] = attrs.field(metadata=json_object())


@protocol("a word to remove a restore", bytes_max=4096, as_json=True)
@attrs.frozen(kw_only=True, slots=True)
class RemoveQuestion(Message):
    """The restore of this stream has stopped."""

    name: str = attrs.field(metadata=text(NAME_BYTES_MAX))
    incarnation: int = attrs.field(metadata=number())


@protocol("a configuration to be kept", bytes_max=CONFIG_BYTES_MAX, bare=True, as_json=True)
@attrs.frozen(kw_only=True, slots=True)
class FreeAnswer(Message):
    """The name is free, and this would be the configuration."""

    config: dict[str, Any] = attrs.field(metadata=json_object())


@protocol("the incarnation of a stream to be restored", bytes_max=32, bare=True, as_json=True)
@attrs.frozen(kw_only=True, slots=True)
class CreatedAnswer(Message):
    """The stream that was created for the restore."""

    incarnation: int = attrs.field(metadata=number(1))


@protocol("a refusal", bytes_max=4 * DESCRIPTION_CHARS_MAX, as_json=True)
@attrs.frozen(kw_only=True, slots=True)
class Refusal(Message):
    """An error of the catalogue."""

    code: int = attrs.field(metadata=number(0, CODE_MAX))
    err_code: int = attrs.field(metadata=number(0, CODE_MAX))
    description: str = attrs.field(metadata=text(DESCRIPTION_CHARS_MAX))


@attrs.frozen(kw_only=True, slots=True)
class BackupAnswer:
    """The archive, as its own message says, or why not."""

    body: bytes = b"null"  # JSON
    refusal: Refusal | None = None

    def pack(self) -> bytes:
        """The bytes in which it travels."""
        return _DONE + self.body if self.refusal is None else _REFUSED + self.refusal.pack()

    @classmethod
    def unpack(cls, packed: bytes) -> BackupAnswer:
        """The answer of `pack`. Raises RemoteProtocolError."""
        if packed[:1] == _DONE:
            return cls(body=packed[1:])
        if packed[:1] == _REFUSED:
            return cls(refusal=Refusal.unpack(packed[1:]))
        raise RemoteProtocolError("the answer to a question of a restore is neither done nor refused")
