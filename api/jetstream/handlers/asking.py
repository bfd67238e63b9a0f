"""The requester, where the request is executed by another node: a header that the node adds where the request enters.

The name is the one that nats-server has between its servers. A client's own entry there is replaced.
"""

from collections.abc import Mapping
from typing import Final

import orjson

from jetraft.store.model import message
from jetraft.store.model.encoding.jsoncodec import encode
from jetraft.store.model.events import EventKind
from jetraft.store.model.responses import ResponseType

NO_USER: Final = "-"
REQUEST_INFO: Final = b"Nats-Request-Info"
NAMED: Final = frozenset(  # requests whose advisories, or lines of the log, name the client
    {
        ResponseType.STREAM_SNAPSHOT,
        ResponseType.STREAM_RESTORE,
        ResponseType.STREAM_CREATE,
        ResponseType.STREAM_UPDATE,
        ResponseType.STREAM_DELETE,
        ResponseType.CONSUMER_CREATE,
        ResponseType.CONSUMER_DELETE,
    }
)


def with_client(hdr: bytes, client: Mapping[str, object]) -> bytes:
    """The headers of a request, with what is said of the client; headers that are none are left out."""
    value = encode(client)
    if not message.valid_block(hdr):
        return message.build({REQUEST_INFO: value})
    return message.append(message.strip(hdr, REQUEST_INFO), REQUEST_INFO, value)


def client_of(hdr: bytes, account: str) -> Mapping[str, object]:
    """The word of the node where the request entered; its account alone when it said nothing, being older."""
    value = message.get(hdr, REQUEST_INFO) if hdr else None
    try:
        found = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {"acc": account}


def log_change(kind: EventKind, account: str, hdr: bytes, **names: str) -> None:
    """Write what a request has changed, and who asked; a request without a client, or from an older node, has none."""
    client = client_of(hdr, account)
    user, host = client.get("user"), client.get("host")
    kind.log(account=account, **names, user=str(user or NO_USER), host=str(host or NO_USER))
