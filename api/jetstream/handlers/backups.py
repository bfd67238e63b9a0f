"""Handlers for backup and restore of a stream. cluster/backup transfers the archives."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from jetraft.api.jetstream.handlers.asking import client_of
from jetraft.api.jetstream.handlers.views import single_stream
from jetraft.cluster.backup.asker import Asker
from jetraft.cluster.backup.large_bodies import worked_on
from jetraft.cluster.backup.mark import is_marked
from jetraft.cluster.backup.sending import Manner
from jetraft.store.model import errors, message
from jetraft.store.model.requests import JSApiStreamRestoreRequest, JSApiStreamSnapshotRequest
from jetraft.store.model.responses import ResponseType, answer, error_answer
from jetraft.store.model.subject import valid_publish_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.api.jetstream.call import Call
    from jetraft.cluster.requests.service import ClusterService

FROM_SEQ: Final = b"Jetraft-From-Seq"  # of an incremental backup: the archive has no message before it
CUT: Final = b"Jetraft-Cut"  # the archive ends with the sequences that are removed by then (cluster/backup/live_cut.py)
SEQ_DIGITS_MAX: Final = 19


async def snapshot(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.SNAPSHOT.*: returns config and state; the archive follows on the deliver subject."""
    if call.is_empty:
        raise errors.BAD_REQUEST.with_values()
    request = call.required_body(JSApiStreamSnapshotRequest)
    service.owners.leading(call.account, call.stream)
    if not valid_publish_subject(request.deliver_subject.encode()):
        raise errors.SNAPSHOT_DELIVER_SUBJECT_INVALID.with_values()
    manner = Manner(
        deliver_subject=request.deliver_subject.encode(),
        chunk_bytes=max(0, request.chunk_size),
        window_bytes=max(0, request.window_size),
        with_consumers=not request.no_consumers,
        client=client_of(call.hdr, call.account),
        from_seq=_from_seq(call.hdr),
        with_cut=bool(call.hdr) and message.get(call.hdr, CUT) == b"1",
    )
    config, state = await service.backups.snapshot(call.account, call.stream, manner)
    return {"config": config.to_json_dict(), "state": state.to_json_dict()}


def _from_seq(hdr: bytes) -> int:
    """The first message that the client lacks; 0 for all. Raises ApiError 10003."""
    said = message.get(hdr, FROM_SEQ) if hdr else None
    if said is None:
        return 0
    if not said.isdigit() or len(said) > SEQ_DIGITS_MAX:
        raise errors.BAD_REQUEST.with_values()
    return int(said)


async def restore(service: ClusterService, call: Call) -> Mapping[str, object]:
    """STREAM.RESTORE.*: returns the subject that receives the archive; its last chunk is answered like a creation."""
    request = await worked_on(call.body, partial(_restore_request, call))
    if request.config.name and request.config.name != call.stream:
        raise errors.STREAM_MISMATCH.with_values()
    if not request.config.name or is_marked(request.config):
        raise errors.BAD_REQUEST.with_values()
    asker = Asker(client=client_of(call.hdr, call.account), answer=partial(_outcome, service))
    return {"deliver_subject": await service.backups.begin_restore(call.account, request.config, call.body, asker)}


def _restore_request(call: Call) -> JSApiStreamRestoreRequest:
    if call.is_empty:
        raise errors.BAD_REQUEST.with_values()
    # An archive may be of a server without the bound on what a request names.
    return call.decode(JSApiStreamRestoreRequest, is_bounded=False)


def _outcome(service: ClusterService, outcome: Mapping[str, Any] | errors.ApiError) -> bytes:
    if isinstance(outcome, errors.ApiError):
        return error_answer(ResponseType.STREAM_CREATE, outcome)
    return answer(ResponseType.STREAM_CREATE, single_stream(service, outcome))
