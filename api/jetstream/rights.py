"""Subjects to which a request would have the server publish, so that the user's right to publish there can be checked.

The keys `jetraft.ack_publish` and `jetraft.dead_letter` of a consumer write to subjects. The right to create consumers
is not that right: it is checked where the request enters, with the permissions of the connection. Configurations that
are nats-server's own, `republish` among them, are judged as there, by the right to the request alone; what they can
reach is bounded by cluster/capture/reach.py.
"""

from typing import Final

from jetraft.store.model.api_error import ApiError
from jetraft.store.model.config import CreateConsumerRequest
from jetraft.store.model.encoding.jsoncodec import decode_request
from jetraft.store.model.extensions import ACK_PUBLISH, DEAD_LETTER, PREFIX, dead_letter_subject

MARK: Final = PREFIX.encode()
ESCAPE: Final = b"\\u"  # names may be written with escapes
ANY_CONSUMER: Final = "*"


def written_by(stream: str, body: bytes) -> list[str]:
    """The subjects and patterns that a consumer of this stream would have the server publish to.

    None where the body cannot be read: such a request is refused where it is carried out, by the same reader.
    """
    if MARK not in body and ESCAPE not in body:
        return []
    try:
        metadata = decode_request(CreateConsumerRequest, body, is_strict=False).config.metadata
    except ApiError:
        return []
    found = [metadata[ACK_PUBLISH]] if ACK_PUBLISH in metadata else []
    if DEAD_LETTER in metadata:
        found.append(dead_letter_subject(metadata[DEAD_LETTER], stream, ANY_CONSUMER))
    return found
