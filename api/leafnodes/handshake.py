"""The handshake before two servers exchange interest: INFO of the one that was connected to, CONNECT of the other.

Everything that a peer sends is checked here. Field names and their order are nats-server's.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs
import orjson

from jetraft.store.model.versioning import API_LEVEL, SERVER_VERSION

PROTOCOL: Final = 1  # of INFO and CONNECT: from 2 on a server takes part in message tracing
URLS_MAX: Final = 64  # of a hub's cluster
NAME_CHARS_MAX: Final = 255
TEXTS: Final = (
    "user", "pass", "auth_token", "nkey", "sig", "jwt", "name", "server_id", "cluster",
    "domain", "version", "remote_account", "proxy_sig",
)  # fmt: skip
FLAGS: Final = ("headers", "jetstream", "is_hub", "isolate_leafnode_interest", "deny_pub_is_set")


class HandshakeError(ValueError):
    """A line that a peer may not send; the text is for the log."""


@attrs.frozen(kw_only=True)
class LeafPeer:
    """The server at the other end, as it names itself. `allow` and `deny` are lists of a hub's permissions."""

    name: str = ""
    server_id: str = ""
    cluster: str = ""
    domain: str = ""
    account: str = ""
    version: str = ""
    headers: bool = True
    is_isolated: bool = False
    is_hub: bool = False
    jetstream: bool = False


def document_of(text: bytes) -> dict[str, Any]:
    """The JSON object of a line. Raises HandshakeError."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise HandshakeError(str(error)) from error
    if not isinstance(found, dict):
        raise HandshakeError("not a JSON object")
    return found


def connect_of(text: bytes) -> tuple[LeafPeer, dict[str, Any]]:
    """The server that connects, and the fields themselves, which have secrets. Raises HandshakeError."""
    document = document_of(text)
    if any(not isinstance(document.get(key, ""), str) for key in TEXTS):
        raise HandshakeError("a field of CONNECT is not a string")
    if any(not isinstance(document.get(key, False), bool) for key in FLAGS):
        raise HandshakeError("a field of CONNECT is not a boolean")
    texts = {key: document.get(key, "") for key in ("name", "server_id", "cluster", "domain", "version")}
    if any(len(value) > NAME_CHARS_MAX for value in texts.values()):
        raise HandshakeError("a name in CONNECT is too long")
    peer = LeafPeer(
        **texts,
        account=document.get("remote_account", ""),
        headers=document.get("headers", False),
        jetstream=document.get("jetstream", False),
        is_isolated=document.get("isolate_leafnode_interest", False),
        is_hub=document.get("is_hub", False),
    )
    return peer, document


@attrs.frozen(kw_only=True)
class HubInfo:
    """An INFO of a hub."""

    peer: LeafPeer
    nonce: str = ""
    compression: str = ""  # what it wishes, or has chosen
    is_admission: bool = False  # it follows CONNECT: the account is known
    announces_admission: bool = False  # it will send one that does
    is_leaf_port: bool = True
    tls_required: bool = False
    urls: tuple[str, ...] = ()
    may_import: dict[str, tuple[str, ...]] = attrs.field(factory=dict)  # what this server may subscribe to there
    may_export: dict[str, tuple[str, ...]] = attrs.field(factory=dict)  # what it may publish there


def subject_rules(value: object) -> dict[str, tuple[str, ...]]:
    """`{"allow": [...], "deny": [...]}`; what is missing or no list is empty."""
    rules = value if isinstance(value, dict) else {}
    return {
        key: tuple(item for item in rules[key] if isinstance(item, str))
        for key in ("allow", "deny")
        if isinstance(rules.get(key), list)
    }


def info_of(text: bytes) -> HubInfo:
    """A hub's description of itself. Raises HandshakeError."""
    document = document_of(text)

    def said(key: str) -> str:
        value = document.get(key)
        return value[:NAME_CHARS_MAX] if isinstance(value, str) else ""

    urls = document.get("leafnode_urls")
    peer = LeafPeer(
        name=said("server_name"),
        server_id=said("server_id"),
        cluster=said("cluster"),
        domain=said("domain"),
        account=said("remote_account"),
        version=said("version"),
        headers=document.get("headers") is True,
        jetstream=document.get("jetstream") is True,
        is_isolated=document.get("isolate_leafnode_interest") is True,
    )
    return HubInfo(
        peer=peer,
        nonce=said("nonce"),
        compression=said("compression"),
        is_admission=document.get("connect_info") is True,
        announces_admission=document.get("info_on_connect") is True,
        is_leaf_port=isinstance(urls, list) or not document.get("client_ip"),
        tls_required=document.get("tls_required") is True,
        urls=tuple(url for url in urls[:URLS_MAX] if isinstance(url, str)) if isinstance(urls, list) else (),
        may_import=subject_rules(document.get("import")),
        may_export=subject_rules(document.get("export")),
    )


@attrs.frozen(kw_only=True)
class OwnNames:
    """This server's description of itself in both roles."""

    server_id: str
    server_name: str
    cluster: str
    domain: str
    jetstream: bool
    max_payload: int
    git_commit: str
    runtime: str

    @property
    def side(self) -> str:
        """The cluster that others know this server by: its name where it has none."""
        return self.cluster or self.server_name

    def info(self, listener: dict[str, Any], about: dict[str, Any], compression: str) -> bytes:
        """INFO of the accepting side. `listener` has its address, `about` what belongs to the connection."""
        document: dict[str, Any] = {
            "server_id": self.server_id,
            "server_name": self.server_name,
            "version": SERVER_VERSION,
            "proto": PROTOCOL,
            "git_commit": self.git_commit,
            "go": self.runtime,
            "host": listener["host"],
            "port": listener["port"],
            "headers": True,
            "auth_required": True,  # also where all may come in: a leaf node always says who it is
            **listener.get("tls", {}),
            "max_payload": self.max_payload,
            **({"jetstream": True} if self.jetstream else {}),
            **({"ip": listener["ip"]} if listener.get("ip") else {}),
            **about,
            **({"cluster": self.cluster} if self.cluster else {}),
            **({"domain": self.domain} if self.domain else {}),
            **({"compression": compression} if compression else {}),
            "api_lvl": API_LEVEL,
            "info_on_connect": True,
            "leafnode_urls": listener["urls"],
        }
        return b"INFO " + orjson.dumps(document) + b" \r\n"

    def chosen(self, compression: str) -> bytes:
        """INFO of the side that connects: how it compresses from here on, which is all that is read of it."""
        document = {"server_id": self.server_id, "server_name": self.server_name, "compression": compression}
        return b"INFO " + orjson.dumps(document) + b" \r\n"

    def connect(
        self, proofs: Mapping[str, str], *, account: str, is_hub: bool, isolate: bool, compression: str
    ) -> bytes:
        """CONNECT of the side that connects. `proofs` has secrets."""
        document: dict[str, Any] = {
            "version": SERVER_VERSION,
            **proofs,
            "server_id": self.server_id,
            **({"domain": self.domain} if self.domain else {}),
            "name": self.server_name,
            **({"is_hub": True} if is_hub else {}),
            "cluster": self.side,
            "headers": True,
            **({"jetstream": True} if self.jetstream else {}),
            "compress_mode": compression,
            **({"isolate_leafnode_interest": True} if isolate else {}),
            "remote_account": account,
            "protocol": PROTOCOL,
        }
        return b"CONNECT " + orjson.dumps(document) + b"\r\n"
