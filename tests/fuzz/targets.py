"""What is fuzzed: for each reader of bytes that a stranger chooses, what it may raise and what must hold afterwards.

A target is a function of bytes that raises on a defect only. What a reader says of bad input is caught here, by its
type: anything else is a finding.
"""

import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import Final, TypeVar

import attrs
import h11
import orjson

from jetraft.api.config.blocks import apply_all
from jetraft.api.config.build import build_options
from jetraft.api.config.file import TOP
from jetraft.api.config.grammar import ConfigError, Parser
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.credentials.claim_fields import TokenError
from jetraft.api.credentials.claims import account_claims, operator_claims, user_claims
from jetraft.api.credentials.nkeys import PREFIX_ACCOUNT, PREFIX_OPERATOR, PREFIX_USER, key_text
from jetraft.api.credentials.tokens import Token, decode_token
from jetraft.api.credentials.version_1 import as_version_2, version_and_kind
from jetraft.api.http_gateway.requests import RefusedRequestError, asked_by, login_of
from jetraft.api.leafnodes.handshake import HandshakeError, connect_of, info_of
from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.leafnodes.web import ANSWER_BYTES_MAX, AnswerError, HubRequest, request_of
from jetraft.api.listeners.proxy_header import SIGNATURE, ProxyHeaderError
from jetraft.api.listeners.proxy_header import parse_header as parse_header_of_proxy
from jetraft.api.options.leafnodes import RemoteOptions, RemoteUrl
from jetraft.api.plane._plane import RouteFormatError
from jetraft.api.plane._web import WebPlane
from jetraft.api.sessions.connect import ConnectOptions, credentials_of, options_of, parse_connect
from jetraft.api.tls.identity import parse_parts
from jetraft.api.websocket._common import WebSocketCommon
from jetraft.api.websocket.closing import close_frames
from jetraft.cluster.consumers.acks import parse_ack_body, parse_ack_subject
from jetraft.cluster.consumers.requests import BadRequestError, parse_pull_request
from jetraft.cluster.state.headers import nats_headers, parse_seq
from jetraft.cluster.state.ttl import parse_ttl
from jetraft.cluster.streams.gets.direct_request import RefusedError, parse_direct_request
from jetraft.raft import wire
from jetraft.raft.engine.messages import AppendAccepted, SnapshotOffer, VoteRequest
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.framing import FrameDecoder
from jetraft.raft.mesh.messages import PROTOCOLS
from jetraft.store.frames._frame import parse_header, verify
from jetraft.store.ledger import file as ledger_file
from jetraft.store.model import requests
from jetraft.store.model.config import ConsumerConfig, StreamConfig
from jetraft.store.model.encoding.jsoncodec import WireObject, encode
from jetraft.store.model.errors import ApiError
from jetraft.store.model.gotime import parse_duration, parse_time
from jetraft.store.model.subject import valid_publish_subject
from jetraft.store.s2._blocks import decode_block, encode_block
from jetraft.store.s2.framing import Compressor, CorruptArchiveError, Decompressor

PROXY_HEADER: Final = (
    b"PROXY TCP4 198.51.100.7 127.0.0.1 5678 4222\r\n",
    b"PROXY TCP6 2001:db8::1 ::1 5678 4222\r\n",
    SIGNATURE + b"\x21\x11\0\x0c" + bytes(12),
    SIGNATURE + b"\x21\x21\0\x24" + bytes(36),
)
PLANE_INPUTS_MAX: Final = 2_000  # then a new plane, so that what an input leaves behind is bounded
K = TypeVar("K")
for _module in ("raft.recovery", "cluster.calls.messages", "cluster.backup"):  # each registers its messages
    for _found in iter_modules(import_module(f"jetraft.{_module}").__path__, f"jetraft.{_module}."):
        import_module(_found.name)
_CALLS: Final = tuple(PROTOCOLS[name] for name in sorted(PROTOCOLS))
_REQUESTS: Final[tuple[type[WireObject], ...]] = (
    StreamConfig,
    ConsumerConfig,
    *(kind for name, kind in vars(requests).items() if name.startswith("JSApi")),
)
_USER, _ACCOUNT, _OPERATOR = (key_text(prefix, bytes(32)) for prefix in (PREFIX_USER, PREFIX_ACCOUNT, PREFIX_OPERATOR))
S2_BYTES_MAX: Final = 1 << 16
WITNESS_INPUTS: Final = 16  # how often another client is asked whether it is still served


CLIENT: Final = (
    b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB a.> 1\r\nPUB a.b 3\r\nabc\r\nPING\r\n',
    b"\x05SUB a q 12\r\nUNSUB 12 2\r\nHPUB a r 12 13\r\nNATS/1.0\r\n\r\nx\r\nPONG\r\n",
    b"\x20CONNECT {}\r\nSUB *.b.> 2\r\nPUB x.b.c reply.to 0\r\n\r\nUNSUB 2\r\n+OK\r\n-ERR 'x'\r\nINFO {}\r\n",
)
_HEAD: Final = struct.Struct("<IBBHIIHH")
PEER: Final = (
    _HEAD.pack(24, 3, 1, 0, 1, 0, 1, 0) + b"\1\0\0\0A\0",
    _HEAD.pack(30, 1, 0, 0, 0, 1, 1, 0) + b"witness.1x",
    _HEAD.pack(24, 2, 1, 0, 1, 0, 3, 0) + b"a.>\0",
)
CONNECT: Final = (
    b'{"verbose":true,"user":"a","pass":"b","protocol":1,"headers":true,"name":"n","lang":"py","version":"2"}',
    b'{"AUTH_TOKEN":"t","nkey":"U","sig":"s","jwt":"e.e.e","echo":null,"no_responders":true}',
)
CONFIGURATION: Final = (
    (
        b"port: 4222\nserver_name = n1\njetstream { store_dir: /x, max_mem: 1GB }\nauthorization { users = [ {user: a, "
        b'password: $NAME, permissions: { publish: ["a.>"], subscribe: { deny: "b" } } } ] }\n# end'
    ),
    b"accounts { A: { users: [{user: a, password: b}], jetstream: enabled }, SYS: {} }\nsystem_account: SYS\n",
    b'cluster { name: c, listen: 127.0.0.1:6222, routes: [nats://127.0.0.1:6223] } // x\nping_interval: "2m"\n',
    b"tls { cert_file: a, verify_and_map: true, cipher_suites: [X], timeout: 2 }\ninclude other.conf\n",
)
API_REQUEST: Final = (
    (
        b'\x00{"name":"S","subjects":["s.>"],"retention":"limits","max_age":1000000000,"num_replicas":3,"storage":"file",'
        b'"placement":{"cluster":"c","tags":["t"]},"subject_transform":{"src":">","dest":"x.>"},"metadata":{"a":"b"}}'
    ),
    (
        b'\x01{"durable_name":"D","deliver_policy":"by_start_time","opt_start_time":'
        b'"2026-01-01T00:00:00Z","ack_wait":1,"backoff":[1,2],"filter_subjects":["a","b"],"pause_until":null}'
    ),
    b'\x08{"batch":10,"expires":1,"seq":5,"last_by_subj":"a","keep":1,"filter":"x","offset":0,"subjects_filter":">"}',
)
STREAM_REQUEST: Final = (
    b'Nats-Msg-Id: 1\r\nNats-TTL: 5s\r\nNats-Expected-Last-Sequence: 7\r\n\x00{"batch":5,"expires":1000000000}',
    b'S.c.1.2.3.4.5\x00-NAK {"delay":100}',
    (
        b'NATS/1.0\r\n\x00{"seq":1,"next_by_subj":"a.*","multi_last":["a",">"],"batch":3,"up_to_time":'
        b'"2026-01-01T00:00:00Z"}'
    ),
    b"\x00+TERM reason",
    (
        b'NATS/1.0\r\nAccept: application/vnd.jetraft.columns.v1\r\n\r\n\x00{"seq":1,"batch":3,"columns":'
        b'{"up_to_seq":9,"message_bytes":9000,"filters":["a.*"],"select":["data"]}}'
    ),
)
LEAF: Final = (
    b"\x09LS+ a.*\r\nLS+ b q 3\r\nLMSG a.b 1\r\nx\r\nLMSG b + r q 0\r\n\r\nLS- a.*\r\nLS- b q\r\n",
    b"\x30HMSG a.b r 12 13\r\nNATS/1.0\r\n\r\nx\r\nLMSG $JS.hub.API.INFO | q p 2\r\nok\r\nLS+ $LDS.x\r\nPING\r\n",
    b'\x40CONNECT {"name":"n","cluster":"c","remote_account":"A","headers":true}\r\nINFO {"nonce":"x"}\r\n-ERR x\r\n',
)
FRAMES: Final = (
    b"\x08\x82\x8e\0\0\0\0PUB a 1\r\nx\r\n\x89\x81\0\0\0\0x\x88\x82\0\0\0\0\x03\xe8",
    b"\x20\xc2\x8d\0\0\0\0\x0a\xf0\xf3\x73\xe7\xe5\x02\0PING\x02\x83\0\0\0\0PIN\x80\x83\0\0\0\0G\r\n",
    b"\x04\x82\xfe\0\x80\0\0\0\0" + b"PONG\r\n" * 21 + b"\r\n\x82\xff\0\0\0\0\0\0\0\x06\1\2\3\4",
)
UPGRADE_KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE: Final = (
    (
        b"\x09HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nNats-No-Masking: true\r\n\r\n\x82\x05INFO "
    ),
    (
        b"\xffHTTP/1.1 101 x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"Sec-WebSocket-Extensions: permessage-deflate; "
        b"server_no_context_takeover; client_no_context_takeover\r\n\r\n"
    ),
    b"\x20HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
)
CLAIMS: Final = (
    (
        b'\x00{"version":2,"pub":{"allow":["a.>"]},"sub":{"deny":["b q"]},"resp":{"max":1,"ttl":5},"subs":-1,"data":-1,'
        b'"src":["10.0.0.0/8"],"times":[{"start":"01:00:00","end":"02:00:00"}],"times_location":"UTC","bearer_token":true}'
    ),
    (
        b'\x01{"version":2,"limits":{"subs":-1,"conn":5,"mem_storage":-1,"disk_storage":9},"revocations":{"*":5},'
        b'"default_permissions":{"pub":{},"sub":{}},"signing_keys":[],"authorization":{},"mappings":{}}'
    ),
    b'\x02{"version":2,"signing_keys":[],"strict_signing_key_usage":true,"system_account":""}',
    b'\x04{"type":"user","tags":["x"],"nats":{"pub":{"allow":["a.>"]},"subs":1,"max":5,"src":"10.0.0.0/8"}}',
    b'\x05{"type":"account","nats":{"limits":{"subs":-1,"conn":5},"revocations":{"*":5},"signing_keys":[],"imports":[]}}',
    b'\x06{"type":"operator","nats":{"signing_keys":[],"system_account":"","account_server_url":"http://h"}}',
    b"\x03eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJuYXRzIjp7InZlcnNpb24iOjJ9fQ.AA",
)
RAFT: Final = tuple(
    b"".join(wire.encode(b"S-R3F-abcdefgh", 7, message))
    for message in (
        VoteRequest(term=3, last_index=9, last_term=2, transfer=False),
        AppendAccepted(term=3, prev_index=1, verified_index=2),
        SnapshotOffer(term=1, index=9, index_term=1, members=b"\x93\x91\xa1A\x90\xc0"),
    )
)
CALL: Final = (
    b"\x00\x93\xa1a\x01\xc0",
    b"\x01\x94\xaeS-R3F-abcdefgh\x07\x05\x03",
    b"\x02\x96\xa1S\x92\x01\x02\xc4\x03abc\x81\xa1a\xa1b\xc3\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00",
    b'\x03{"a":[1,2,"x"],"b":null}',
)
STORED: Final = (bytes(64), b"\x40\x00\x00\x00" + bytes(60), bytes(range(128)))
S2: Final = (encode_block(bytes(range(64)) * 9), Compressor().add(b"abc" * 90), Compressor().add(bytes(9)))
HTTP: Final = (
    b"POST /pub/s.a\nnats-msg-id: 1\nx-header-colour: red",
    b"GET /stream/S/msg/17\nauthorization: Basic YTpi",
    b"GET /stream/S/last/s.%61?x=y\naccept: application/octet-stream",
    b"x Basic YTpi",
)
TEXT: Final = (b"2026-01-01T00:00:00.123456789+01:00", b"1h2m3.5s4us", b"CN=a\\,b,O=c+DC=d;X=e")


@attrs.frozen(kw_only=True)
class Target:
    """A reader, and inputs that it accepts: what is fuzzed is made from them."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


class _Planes:
    """A plane with a witness that must be served whatever other clients and peers send."""

    def __init__(self) -> None:
        self._inputs = 0
        self._begin()

    def client(self, data: bytes) -> None:
        """The bytes of a client, in two pieces: the first byte says where they are divided."""
        self._count()
        cid = self.plane.open(-1, b"")
        at = min(len(data), 1 + (data[0] if data else 0))
        with suppress(KeyError):  # the plane has closed it
            self.plane.feed(cid, data[1:at])
            self.plane.feed(cid, data[at:])
        if cid in self.plane.connection_ids():
            self.plane.close(cid, 0)
        self.plane.flush()

    def leaf(self, data: bytes) -> None:
        """The bytes of a server at the other end: the first says where they are divided, and whether it is admitted."""
        self._count()
        first = data[0] if data else 0
        cid = self.plane.open_leaf(-1, solicited=bool(first & 1))
        if first & 0x40 == 0:
            spoke, isolated = bool(first & 2), bool(first & 4)
            self.plane.admit_leaf(
                cid, account="$G", cluster=b"l", spoke=spoke, isolated=isolated, headers=True, permissions=None
            )
        at = min(len(data), 1 + first)
        with suppress(KeyError):  # the plane has closed it
            self.plane.feed(cid, data[1:at])
            self.plane.feed(cid, data[at:])
        if cid in self.plane.connection_ids():
            self.plane.close(cid, 0)
        self.plane.flush()

    def frames(self, data: bytes) -> None:
        """The frames of a client or a hub, in two pieces; with masks and compression, or without them."""
        self._count()
        first = data[0] if data else 0
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)  # noqa: FBT003  the socket module's own signature
            theirs.setblocking(False)  # noqa: FBT003
            cid = self.plane.open(ours.detach(), b"")
            self.plane.expect_upgrade(cid, self.common)
            at = min(len(data), 1 + first)
            if first & 8:  # a hub's, what came behind its answer too
                self.plane.upgraded(cid, data[1:at], masks=not first & 1, deflates=not first & 2)
            else:
                self.plane.upgrade(cid, b"", masked=not first & 1, deflates=not first & 2, browser=bool(first & 4))
            for piece in (data[1:at], data[at:]):
                with suppress(BlockingIOError, ConnectionError):  # more than a socket holds; the plane has closed it
                    theirs.send(piece)
                while self.plane.turn() > 0:
                    self.plane.flush()
            if cid in self.plane.connection_ids():
                self.plane.close(cid, 0)
            self.plane.flush()

    def peer(self, data: bytes) -> None:
        """The records of a peer's routes."""
        self._count()
        route = self.plane.open_route()
        with suppress(RouteFormatError):
            self.plane.on_route(route, data)
        self.plane.close_route(route)
        self.plane.flush()

    def _begin(self) -> None:
        self.plane = WebPlane(
            max_payload=1 << 16,
            max_control_line=4096,
            max_pending=1 << 20,
            max_subscriptions=100,
            connect_handler=_connect,
            first_ping_handler=lambda _cid: b"",
            violation_handler=lambda *_: b"",
            leaf_handler=_leaf_line,
        )
        self.common = WebSocketCommon(
            ping_interval_ns=0,
            packed_max=1 << 19,
            plain_max=1 << 17,
            closes=close_frames(),
            on_http=lambda _cid, _data: None,
        )
        self.plane.serve_websocket(self.common)
        self.plane.set_domain(b"hub")
        self._witness = self.plane.open(-1, b"")
        self.plane.feed(self._witness, b'CONNECT {"verbose":false}\r\nSUB witness.* 1\r\n')

    def _count(self) -> None:
        self._inputs += 1
        if self._inputs % WITNESS_INPUTS == 0:
            self.plane.take(self._witness)
            subject = b"witness.%d" % self._inputs
            self.plane.feed(self._witness, b"PUB %b 2\r\nok\r\n" % subject)
            assert self.plane.take(self._witness) == b"MSG %b 1 2\r\nok\r\n" % subject
        if self._inputs % PLANE_INPUTS_MAX == 0:
            self._begin()


def _connect(_cid: int, text: bytes | None) -> ConnectOptions:
    document = parse_connect(text or b"{}")
    if document is None:
        return ConnectOptions(error=b"-ERR 'Invalid'\r\n", close_reason=1)
    return options_of(document)


def _leaf_line(_cid: int, _kind: int, text: bytes) -> None:
    for read in (connect_of, info_of):
        with suppress(HandshakeError):
            read(text)


def _upgrade(data: bytes) -> None:
    """What a hub answers to the request of a leaf node for an upgrade, in two pieces: the first byte says where."""
    url = RemoteUrl(host="h", port=1, web=True)
    remote = RemoteOptions(urls=(url,), ws_compression=True, ws_no_masking=True)
    link = LeafLink(cid=1, ip="", port=0, start_unix_ns=0, remote=remote, url=url)
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=ANSWER_BYTES_MAX)
    http.send(h11.Request(method="GET", target="/leafnode", headers=request_of(link, UPGRADE_KEY)))
    http.send(h11.EndOfMessage())
    asked = HubRequest(link, UPGRADE_KEY, http)
    at = min(len(data), 1 + (data[0] if data else 0))
    with suppress(AnswerError, h11.RemoteProtocolError):
        if asked.read(data[1:at]) is None:
            asked.read(data[at:])


def _token(data: bytes) -> None:
    """The text of a token, or claims whose signature is verified: the first byte says whose, and which version."""
    readers = (
        ("user", _USER, user_claims),
        ("account", _ACCOUNT, account_claims),
        ("operator", _OPERATOR, operator_claims),
    )
    chosen = (data[0] if data else 0) % (2 * len(readers) + 1)
    with suppress(TokenError):
        if chosen == len(readers):
            decode_token(data[1:])
            return
        nats = decode_json(data[1:])
        if isinstance(nats, dict):
            kind, key, read = readers[chosen % (len(readers) + 1)]
            if chosen > len(readers):
                version_and_kind(nats)
                nats = as_version_2(kind, nats)
            named = {"kind": kind, "issuer": key, "subject": key, "name": "", "audience": ""}
            read(Token(**named, issued_at_s=0, expires_s=0, not_before_s=0, nats=nats))


def decode_json(data: bytes) -> object:
    """What a token's part may hold, or None."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _one_of(kinds: Sequence[type[K]], data: bytes) -> type[K]:
    """The kind that the first byte chooses."""
    return kinds[data[0] % len(kinds) if data else 0]


def _connect_line(data: bytes) -> None:
    document = parse_connect(data)
    again = None if document is None else parse_connect(data, document)
    assert again == document
    if document is not None:
        options_of(document)
        credentials_of(document)


def _configuration(data: bytes) -> None:
    settings: Settings = {}

    def refuse(name: str) -> str:
        raise FileNotFoundError(name)

    try:
        parser = Parser(data.decode(), "fuzz.conf", refuse, {"NAME": "value"})
        apply_all("", parser.parse(), TOP, settings)
        build_options(settings)
    except (ConfigError, OptionsError, UnicodeDecodeError):
        return
    except FileNotFoundError as error:
        assert error.filename is None, "a file was opened"  # noqa: PT017  (ours has no file name)


def _api_request(data: bytes) -> None:
    """The body of a request of any kind: the first byte says of which."""
    with suppress(ApiError):
        encode(_one_of(_REQUESTS, data).from_json(data[1:]))


def _stream_request(data: bytes) -> None:
    """What a stream's leader reads of a pull, an acknowledgement, a direct get and a publish."""
    hdr, _, body = data.partition(b"\x00")
    with suppress(BadRequestError):
        parse_pull_request(body)
    parse_ack_body(body)
    parse_ack_subject(b"$JS.ACK." + hdr)
    with suppress(RefusedError):
        parse_direct_request(body, hdr)
    for value in nats_headers(hdr).values():
        parse_seq(value)
        parse_ttl(value)


def _raft_payload(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        wire.decode(memoryview(data))
    decoder = FrameDecoder()
    with suppress(RemoteProtocolError):
        decoder.space()[: len(data)] = data
        decoder.received(len(data), lambda _channel, _payload: None)


def _call(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        _one_of(_CALLS, data).unpack(data[1:])


def _stored(data: bytes) -> None:
    with suppress(ValueError):
        ledger_file.parse(data)
    with suppress(ValueError):
        parse_header(data)
        verify(data)


def _text(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    parse_time(text)
    parse_duration(text)
    parse_parts(text)


def _proxy_header(data: bytes) -> None:
    """What comes before a client's bytes: a header is found in its own bytes, and more of them change nothing."""
    try:
        found = parse_header_of_proxy(data)
    except ProxyHeaderError:
        return
    assert found is None or parse_header_of_proxy(data + b"PING") == found


def _s2(data: bytes) -> None:
    """Blocks of leaf nodes and archives: what was compressed comes back, and no block is larger than it may be."""
    assert decode_block(encode_block(data), len(data)) == data
    with suppress(ValueError):
        assert len(decode_block(data, S2_BYTES_MAX)) <= S2_BYTES_MAX
    with suppress(CorruptArchiveError):
        list(Decompressor().add(data))


def _http(data: bytes) -> None:
    """A request line, and headers as h11 gives them: names in lower case, values without line ends."""
    line, *rest = data.split(b"\n")
    method, _, target = line.decode("latin-1").partition(" ")
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (one.partition(b":") for one in rest)]
    with suppress(RefusedRequestError):
        asked = asked_by(method, target, headers)
        assert valid_publish_subject(asked.subject)
        assert b"\r\n\r\n" not in asked.hdr[:-4]
    with suppress(RefusedRequestError):
        login_of(target)


def _targets() -> dict[str, Target]:
    planes, peers, leafs, webs = _Planes(), _Planes(), _Planes(), _Planes()
    return {
        "client": Target(run=planes.client, seeds=CLIENT),
        "peer": Target(run=peers.peer, seeds=PEER),
        "leaf": Target(run=leafs.leaf, seeds=LEAF),
        "frames": Target(run=webs.frames, seeds=FRAMES),
        "upgrade": Target(run=_upgrade, seeds=UPGRADE),
        "proxy-header": Target(run=_proxy_header, seeds=PROXY_HEADER),
        "token": Target(run=_token, seeds=CLAIMS),
        "connect": Target(run=_connect_line, seeds=CONNECT),
        "configuration": Target(run=_configuration, seeds=CONFIGURATION),
        "api-request": Target(run=_api_request, seeds=API_REQUEST),
        "stream-request": Target(run=_stream_request, seeds=STREAM_REQUEST),
        "raft": Target(run=_raft_payload, seeds=RAFT),
        "call": Target(run=_call, seeds=CALL),
        "stored": Target(run=_stored, seeds=STORED),
        "text": Target(run=_text, seeds=TEXT),
        "s2": Target(run=_s2, seeds=S2),
        "http": Target(run=_http, seeds=HTTP),
    }


TARGETS: Final = _targets()
