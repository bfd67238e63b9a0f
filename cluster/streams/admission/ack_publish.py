"""Admits a message that is published with an ack, in one entry with it. Pure.

The message is judged as any other one. It must go to the stream whose delivery it acknowledges: two streams have two
logs, which share no entry, so nothing else is one step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from jetraft.cluster.consumers.ack_publish import PUBLISH, AckOutcome
from jetraft.cluster.streams.publishing.candidate import Candidate, PublishRefused
from jetraft.cluster.streams.publishing.refusals import answer_duplicate
from jetraft.cluster.streams.schedules.delaying import asks_to_wait
from jetraft.store.model import errors
from jetraft.store.model.api_error import ApiError
from jetraft.store.model.extensions import ACK_PUBLISH
from jetraft.store.model.message import SCHEDULE
from jetraft.store.model.subject import matches, valid_publish_subject

if TYPE_CHECKING:
    from jetraft.cluster.consumers.ack_publish import AckPublish
    from jetraft.cluster.streams.admission.admit import PublishAdmission
    from jetraft.cluster.streams.publishing.publish import Admitted, Known, Turn
    from jetraft.store.model.config import StreamConfig

CALLED: Final = PUBLISH.decode()


@attrs.frozen(slots=True)
class AdmittedAck:
    """The outcome, and what is to be proposed and answered."""

    outcome: AckOutcome
    admitted: Admitted


def admit_with_ack(
    admission: PublishAdmission, asked: AckPublish, now_ns: int, *, domain: str, refuse_with: ApiError | None
) -> AdmittedAck:
    """Judge the message; with `refuse_with` it gets that error."""
    turn, config = admission.begin(now_ns), admission.config
    candidate = Candidate.at(asked.record, 0, has_ack=True)
    error = refuse_with or _why_not(candidate, asked, config)
    if error is None and admission.is_overloaded:
        error = errors.STREAM_TOO_MANY_REQUESTS.with_values()
    if error is not None:
        return _refused(admission, turn, candidate, error)
    known: Known | None
    if not asked.is_newest:
        known = admission.duplicate_of(candidate)
    else:
        publish = admission.open(turn)
        try:
            known = admission.check(publish, candidate)
            if known is None:
                admission.add(publish, candidate, asked.record, 0, acked=True)
        except PublishRefused as refused:
            return _refused(admission, turn, candidate, refused.error)
    admission.close(turn)
    if known is not None:
        answer_duplicate(turn, candidate.reply, known, config, domain)
        return AdmittedAck(AckOutcome.KNOWN if asked.is_newest else AckOutcome.REPEATED, turn.admitted)
    return AdmittedAck(AckOutcome.STORED if asked.is_newest else AckOutcome.STALE, turn.admitted)


def _refused(admission: PublishAdmission, turn: Turn, candidate: Candidate, error: ApiError) -> AdmittedAck:
    admission.refuse(turn, candidate.reply, error)
    return AdmittedAck(AckOutcome.REFUSED, turn.admitted)


def _why_not(candidate: Candidate, asked: AckPublish, config: StreamConfig) -> ApiError | None:
    """Why a message is not to be had in one step with an ack; None where it is."""
    subject, headers = candidate.subject, candidate.headers
    shown = subject[:80].decode(errors="replace")
    is_elsewhere = config.mirror is not None or not config.subject_tree.matches(subject)
    is_counted = config.subject_transform is not None or config.allow_msg_counter
    is_for_later = candidate.is_of_batch or bool(headers.get(SCHEDULE)) or asks_to_wait(candidate.hdr)
    reasons = (
        (not asked.allowed, f" needs {ACK_PUBLISH} of the consumer"),
        (not valid_publish_subject(subject), f" is a subject without wildcards, not {shown!r}"),
        (
            not matches(asked.allowed.encode(), subject),
            f": {shown} is not within {ACK_PUBLISH} of the consumer, {asked.allowed}",
        ),
        (is_elsewhere, f": stream {config.name} does not capture {shown}, and two streams are not one step"),
        (is_counted, " is not for streams with counters or a subject transform"),
        (is_for_later, " is not for messages of batches, schedules, and messages that wait"),
    )
    text = next((text for applies, text in reasons if applies), "")
    if not text:
        return None
    spec = errors.BAD_REQUEST.with_values()
    return ApiError(code=spec.code, err_code=spec.err_code, description=CALLED + text)
