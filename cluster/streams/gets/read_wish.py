"""The wishes of a direct get to the replica that answers it. Pure.

It has to be as far as a sequence, or to have all that is committed. Both can be said in headers, for requests whose
subject says it all, and in the body.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import orjson

from jetraft.cluster.streams.gets.direct_request import MALFORMED, RefusedError, position_needed
from jetraft.store.model import message

CONSISTENCY: Final = b"Jetraft-Consistency"
LINEARIZABLE: Final = "linearizable"
EVENTUAL: Final = "eventual"
MIN_SEQ_FIELD: Final = b'"min_seq"'
CONSISTENCY_FIELD: Final = b'"consistency"'
OF_EXTENSIONS: Final = b"Jetraft-"  # what both headers begin with
SEQ_MAX: Final = (1 << 63) - 1

UNCONFIRMED: Final = message.status(412, b"Read Not Confirmed")  # not 503: clients take that for no responders


@attrs.frozen(slots=True)
class ReadWish:
    """The sequence that the replica has to have, 0 for any, and whether it has to have all that is committed.

    `linearizable` is None where the request does not say.
    """

    min_seq: int = 0
    linearizable: bool | None = None


NO_WISH: Final = ReadWish()


def wish_of(hdr: bytes, payload: bytes) -> ReadWish:
    """The wishes of a request; the body wins. Raises RefusedError when it asks for what there is not."""
    # `find` costs a third of `in`, and most requests wish for nothing.
    is_in_body = bool(payload) and (payload.find(MIN_SEQ_FIELD) >= 0 or payload.find(CONSISTENCY_FIELD) >= 0)
    if not is_in_body and (not hdr or hdr.find(OF_EXTENSIONS) < 0):
        return NO_WISH
    min_seq, said = position_needed(hdr), (message.get(hdr, CONSISTENCY) if hdr else None)
    consistency: Any = None if said is None else said.decode(errors="replace")
    if is_in_body:
        fields = _fields(payload)
        min_seq, consistency = fields.get("min_seq", min_seq), fields.get("consistency", consistency)
    if type(min_seq) is not int or not 0 <= min_seq <= SEQ_MAX or consistency not in (None, EVENTUAL, LINEARIZABLE):
        raise RefusedError(MALFORMED)
    return ReadWish(min_seq, None if consistency is None else consistency == LINEARIZABLE)


def _fields(payload: bytes) -> dict[str, Any]:
    """Those of the body; none where it is no object: that is refused when it is read as a request."""
    try:
        fields = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}
