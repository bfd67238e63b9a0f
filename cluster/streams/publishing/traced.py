"""The trace of a message that a stream does not take: nats-server's own errors, in its words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetraft.store.model import errors
from jetraft.store.model.encoding.gojson import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.store.model.api_error import ApiError

DUPLICATE: Final = "msgid is duplicate"
TOO_LARGE: Final = "maximum payload exceeded"


def refused_text(error: ApiError, headers: Mapping[bytes, bytes]) -> str:
    """The text for an error of the catalogue; where it compares, with what the headers expected."""
    found = error.description.rpartition(": ")[2]
    if error.err_code == errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM.err_code:
        return TOO_LARGE
    if error.err_code == errors.STREAM_WRONG_LAST_SEQUENCE.err_code:
        of_stream = headers.get(b"Nats-Expected-Last-Sequence", b"").decode(errors="replace")
        if of_stream and of_stream != found:
            return f"last sequence mismatch: {of_stream} vs {found}"
        of_subject = headers.get(b"Nats-Expected-Last-Subject-Sequence", b"").decode(errors="replace")
        return f"last sequence by subject mismatch: {of_subject} vs {found}"
    if error.err_code == errors.STREAM_WRONG_LAST_MSG_ID.err_code:
        expected = headers.get(b"Nats-Expected-Last-Msg-Id", b"").decode(errors="replace")
        return f"last msgid mismatch: {quote(expected)} vs {quote(found)}"
    return f"{error.description} ({error.err_code})"
