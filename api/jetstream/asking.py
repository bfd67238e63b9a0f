"""Who asks, where the request is executed by another node: a header that the node adds where the request enters.

The name is the one that nats-server has between its servers. What a client puts there itself is replaced.
"""

from collections.abc import Mapping
from typing import Final

import orjson

from jetraft.store.model import message
from jetraft.store.model.jsoncodec import encode
from jetraft.store.model.responses import ResponseType

REQUEST_INFO: Final = b"Nats-Request-Info"
NAMED: Final = (ResponseType.STREAM_SNAPSHOT, ResponseType.STREAM_RESTORE)  # requests whose events name the client


def with_client(hdr: bytes, client: Mapping[str, object]) -> bytes:
    """The headers of a request, with what is said of the client; headers that are none are left out."""
    value = encode(client)
    if not message.valid_block(hdr):
        return message.build({REQUEST_INFO: value})
    return message.append(message.strip(hdr, REQUEST_INFO), REQUEST_INFO, value)


def client_of(hdr: bytes, account: str) -> Mapping[str, object]:
    """What the node said where the request entered; its account alone when it said nothing, being older."""
    value = message.get(hdr, REQUEST_INFO) if hdr else None
    try:
        found = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {"acc": account}
