"""Leaf node connections in the plane: what they are told, what they get, and what they may send."""

import pytest

from jetraft.api.plane._permissions import UserPermissions
from jetraft.api.plane._plane import Plane
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.connect import ConnectOptions

LINE_MAX = 65534


class Lab:
    """A plane whose connections are fed by hand, and the lines that it left to Python."""

    def __init__(self, *, max_subscriptions: int = 0, max_payload: int = 1024) -> None:
        self.texts: list[tuple[int, int, bytes]] = []
        self.plane = Plane(
            max_payload=max_payload,
            max_control_line=4096,
            max_pending=64 << 20,
            max_subscriptions=max_subscriptions,
            connect_handler=lambda _cid, _text: ConnectOptions(verbose=False, pedantic=False, headers=True),
            first_ping_handler=lambda _cid: b"",
            violation_handler=lambda _cid, _kind, _subject, _queue, _sid: b"",
            leaf_handler=lambda cid, kind, text: self.texts.append((cid, kind, text)),
        )

    def client(self) -> int:
        cid = self.plane.open(-1, b"")
        self.feed(cid, b"CONNECT {}\r\n")
        return cid

    def leaf(
        self,
        cluster: bytes = b"leaf",
        *,
        spoke: bool = False,
        isolated: bool = False,
        headers: bool = True,
        permissions: UserPermissions | None = None,
    ) -> int:
        cid = self.plane.open_leaf(-1, solicited=spoke)
        assert self.plane.admit_leaf(
            cid,
            account="$G",
            cluster=cluster,
            spoke=spoke,
            isolated=isolated,
            headers=headers,
            permissions=permissions,
        )
        return cid

    def feed(self, cid: int, data: bytes) -> None:
        self.plane.feed(cid, data)

    def sent(self, cid: int) -> bytes:
        return self.plane.take(cid)

    def closed(self) -> dict[int, int]:
        return {cid: reason for cid, reason, _ in self.plane.flush()}


def denying(*subjects: bytes) -> UserPermissions:
    entries = [(subject, b"") for subject in subjects]
    return UserPermissions(publish_allow=None, publish_deny=entries, subscribe_allow=None, subscribe_deny=entries)


def test_interest_is_told_once_for_a_subject_and_with_its_weight_for_a_queue() -> None:
    lab = Lab()
    one, two = lab.client(), lab.client()
    lab.feed(one, b"SUB before 1\r\nSUB before 2\r\nSUB q Q 3\r\n")
    leaf = lab.leaf()
    assert sorted(lab.sent(leaf).splitlines()) == [b"LS+ before", b"LS+ q Q 1"]
    lab.feed(two, b"SUB before 1\r\nSUB q Q 2\r\nSUB after 3\r\n")
    assert lab.sent(leaf) == b"LS+ q Q 2\r\nLS+ after\r\n"
    lab.feed(one, b"UNSUB 1\r\nUNSUB 2\r\nUNSUB 3\r\n")
    assert lab.sent(leaf) == b"LS+ q Q 1\r\n"
    lab.feed(two, b"UNSUB 1\r\nUNSUB 2\r\n")
    assert lab.sent(leaf) == b"LS- before\r\nLS- q Q\r\n"
    lab.plane.close(two, Reason.CLIENT_CLOSED)
    lab.plane.flush()
    assert lab.sent(leaf) == b"LS- after\r\n"


def test_interest_of_a_leaf_node_reaches_other_leaf_nodes_but_not_itself_or_its_cluster() -> None:
    lab = Lab()
    first, twin, other = lab.leaf(b"a"), lab.leaf(b"a"), lab.leaf(b"b")
    lab.feed(first, b"LS+ x\r\nLS+ y Q 5\r\n")
    assert [lab.sent(cid) for cid in (first, twin, other)] == [b"", b"", b"LS+ x\r\nLS+ y Q 5\r\n"]
    lab.feed(first, b"LS+ y Q 2\r\n")
    assert lab.sent(other) == b"LS+ y Q 2\r\n"
    lab.plane.close(first, Reason.CLIENT_CLOSED)
    lab.plane.flush()
    assert sorted(lab.sent(other).splitlines()) == [b"LS- x", b"LS- y Q"]


def test_an_isolated_leaf_node_hears_of_loop_checks_only() -> None:
    lab = Lab()
    isolated, other = lab.leaf(b"a", isolated=True), lab.leaf(b"b")
    lab.feed(other, b"LS+ x\r\nLS+ $LDS.abc\r\n")
    assert lab.sent(isolated) == b"LS+ $LDS.abc\r\n"
    assert [(kind, text) for _, kind, text in lab.texts] == [(5, b"$LDS.abc")]


def test_a_hub_hears_of_clients_and_leaf_nodes_but_not_of_other_hubs() -> None:
    lab = Lab()
    hub, other = lab.leaf(b"h", spoke=True), lab.leaf(b"i", spoke=True)
    leaf, client = lab.leaf(b"l"), lab.client()
    lab.feed(other, b"LS+ theirs\r\n")
    lab.feed(leaf, b"LS+ below\r\n")
    lab.feed(client, b"SUB own 1\r\n")
    assert lab.sent(hub) == b"LS+ below\r\nLS+ own\r\n"


def test_a_message_goes_once_to_each_leaf_node_with_its_queues() -> None:
    lab = Lab()
    leaf, client = lab.leaf(), lab.client()
    lab.feed(leaf, b"LS+ a.*\r\nLS+ a.>\r\nLS+ a.b Q1 1\r\nLS+ a.> Q2 1\r\n")
    lab.feed(client, b"PUB a.b r 2\r\nhi\r\nPUB a.b 2\r\nho\r\nHPUB a.c 12 13\r\nNATS/1.0\r\n\r\n!\r\nPUB b 1\r\nx\r\n")
    assert lab.sent(leaf) == (
        b"LMSG a.b + r Q2 Q1 2\r\nhi\r\nLMSG a.b | Q2 Q1 2\r\nho\r\nHMSG a.c | Q2 12 13\r\nNATS/1.0\r\n\r\n!\r\n"
    )


def test_headers_are_left_out_for_a_server_without() -> None:
    lab = Lab()
    leaf, client = lab.leaf(headers=False), lab.client()
    lab.feed(leaf, b"LS+ a\r\n")
    lab.feed(client, b"HPUB a 12 13\r\nNATS/1.0\r\n\r\n!\r\n")
    assert lab.sent(leaf) == b"LMSG a 1\r\n!\r\n"


def test_a_message_of_a_leaf_node_does_not_go_back_or_to_its_cluster() -> None:
    lab = Lab()
    first, twin, other, client = lab.leaf(b"a"), lab.leaf(b"a"), lab.leaf(b"b"), lab.client()
    for leaf in (first, twin, other):
        lab.feed(leaf, b"LS+ x\r\nLS+ x Q 1\r\n")
    lab.feed(client, b"SUB x 1\r\n")
    for cid in (first, twin, other, client):
        lab.sent(cid)
    lab.feed(first, b"LMSG x 2\r\nhi\r\n")
    assert [lab.sent(cid) for cid in (first, twin, other, client)] == [
        b"", b"", b"LMSG x 2\r\nhi\r\n", b"MSG x 1 2\r\nhi\r\n",
    ]  # fmt: skip
    lab.feed(first, b"LMSG x | Q 2\r\nhi\r\n")
    assert lab.sent(other) == b"LMSG x | Q 2\r\nhi\r\n"


def test_only_the_queues_that_a_message_names_get_it() -> None:
    lab = Lab()
    leaf, client = lab.leaf(), lab.client()
    lab.feed(client, b"SUB x Q1 1\r\nSUB x Q2 2\r\n")
    lab.feed(leaf, b"LMSG x 1\r\na\r\nLMSG x | Q2 1\r\nb\r\nLMSG x + r Q1 Q3 1\r\nc\r\n")
    assert lab.sent(client) == b"MSG x 2 1\r\nb\r\nMSG x 1 r 1\r\nc\r\n"


def test_a_stored_message_keeps_the_subject_that_receivers_see() -> None:
    lab = Lab()
    leaf, client = lab.leaf(), lab.client()
    ack = b"$JS.ACK.S.c.1.1.1.1.0"
    lab.feed(leaf, b"LS+ inbox\r\n")
    lab.plane.send(lab.plane.account("$G"), b"inbox", subject=b"orders@x", reply=ack, payload=b"p")
    assert lab.sent(leaf) == b"LMSG inbox " + ack + b"@orders@x 1\r\np\r\n"
    lab.feed(leaf, b"LS- inbox\r\n")
    lab.feed(client, b"SUB inbox 1\r\n")
    lab.feed(leaf, b"LMSG inbox " + ack + b"@orders@x 1\r\np\r\nLMSG inbox $JS.ACK.S@y.c 1\r\nq\r\n")
    assert lab.sent(client) == b"MSG orders@x 1 " + ack + b" 1\r\np\r\nMSG inbox 1 $JS.ACK.S@y.c 1\r\nq\r\n"


def test_a_queue_member_behind_a_leaf_node_is_the_last_choice() -> None:
    lab = Lab()
    leaf, client, member = lab.leaf(), lab.client(), lab.client()
    lab.feed(leaf, b"LS+ x Q 1000\r\n")
    lab.feed(member, b"SUB x Q 1\r\n")
    lab.feed(client, b"PUB x 1\r\na\r\n" * 20)
    assert lab.sent(leaf).count(b"LMSG") == 0
    lab.feed(member, b"UNSUB 1\r\n")
    lab.sent(leaf)
    lab.feed(client, b"PUB x 1\r\na\r\n")
    assert lab.sent(leaf) == b"LMSG x | Q 1\r\na\r\n"


def test_what_is_denied_is_neither_told_nor_sent_nor_taken() -> None:
    lab = Lab()
    client = lab.client()
    lab.feed(client, b"SUB no.a 1\r\nSUB > 2\r\n")
    leaf = lab.leaf(permissions=denying(b"no.>"))
    assert lab.sent(leaf) == b"LS+ >\r\n"
    lab.feed(leaf, b"LS+ no.b\r\nLS+ >\r\nLMSG no.a 1\r\nx\r\n")
    assert [(kind, text) for _, kind, text in lab.texts] == [(6, b"no.b"), (7, b"no.a")]
    assert lab.sent(client) == b""
    lab.feed(client, b"PUB no.b 1\r\nx\r\nPUB yes 1\r\ny\r\n")
    assert lab.sent(leaf) == b"LMSG yes 1\r\ny\r\n"


def test_a_domain_is_another_name_of_the_api() -> None:
    lab = Lab()
    lab.plane.set_domain(b"d")
    seen, leaf = lab.client(), lab.leaf()
    lab.feed(seen, b"SUB $JS.API.> 1\r\nSUB $KV.> 2\r\nSUB $JS.d.API.> 3\r\nSUB $JS.API.DIRECT.GET.S Q 4\r\n")
    asker = lab.client()
    for cid, verb in ((asker, b"PUB"), (leaf, b"LMSG")):
        for subject in (b"INFO", b"STREAM.INFO.S", b"$KV.b.k", b"OTHER", b"INFO.x", b"DIRECT.GET.S"):
            lab.feed(cid, b"%s $JS.d.API.%s 1\r\nx\r\n" % (verb, subject))
        subjects = [line.split()[1] for line in lab.sent(seen).splitlines() if line.startswith(b"MSG")]
        assert subjects == [
            b"$JS.API.INFO", b"$JS.API.STREAM.INFO.S", b"$KV.b.k", b"$JS.d.API.OTHER", b"$JS.d.API.INFO.x",
            b"$JS.API.DIRECT.GET.S", b"$JS.API.DIRECT.GET.S",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (b"LS+ a Q\r\n", Reason.PROTOCOL_VIOLATION),
        (b"LS+ a b c d\r\n", Reason.PROTOCOL_VIOLATION),
        (b"LS+ \r\n", Reason.PROTOCOL_VIOLATION),
        (b"LMSG a\r\n", Reason.PROTOCOL_VIOLATION),
        (b"LMSG a b c d 0\r\n\r\n", Reason.PROTOCOL_VIOLATION),
        (b"LMSG a -1\r\n", Reason.PROTOCOL_VIOLATION),
        (b"HMSG a 5 2\r\nxx\r\n", Reason.PROTOCOL_VIOLATION),
        (b"LMSG a 2\r\nxxx\r\n", Reason.PROTOCOL_VIOLATION),
        (b"PUB a 0\r\n\r\n", Reason.PROTOCOL_VIOLATION),
        (b"LMSG a 2000\r\n", Reason.MAXIMUM_PAYLOAD_EXCEEDED),
        (b"LS+ " + b"a" * LINE_MAX, Reason.MAXIMUM_CONTROL_LINE_EXCEEDED),
        (b"LMSG a | " + b"q " * 100 + b"0\r\n\r\n", Reason.PROTOCOL_VIOLATION),
    ],
)
def test_bad_lines_close_the_connection(lines: bytes, reason: Reason) -> None:
    lab = Lab()
    leaf = lab.leaf()
    lab.feed(leaf, lines)
    assert lab.closed() == {leaf: reason}


def test_a_line_in_pieces_is_one_line() -> None:
    lab = Lab()
    leaf, client = lab.leaf(), lab.client()
    lab.feed(client, b"SUB abc 1\r\n")
    for byte in b"LMSG abc r 2\r\nhi\r\nPING\r\n":
        lab.feed(leaf, bytes([byte]))
    assert lab.sent(client) == b"MSG abc 1 r 2\r\nhi\r\n"
    assert lab.sent(leaf) == b"LS+ abc\r\nPONG\r\n"


def test_the_number_of_subscriptions_of_a_leaf_node_is_bounded() -> None:
    lab = Lab(max_subscriptions=2)
    leaf = lab.leaf()
    lab.feed(leaf, b"LS+ a\r\nLS+ b\r\nLS+ a\r\nLS+ c\r\nLS+ d..e\r\n")
    assert lab.sent(leaf) == b"-ERR 'maximum subscriptions exceeded'\r\n-ERR 'Invalid Subscription'\r\n"
    assert sorted(row[1] for row in lab.plane.subscriptions_from(leaf, 0, 100)[2]) == [b"a", b"b"]


def test_before_it_is_admitted_a_connection_may_only_say_who_it_is() -> None:
    lab = Lab()
    asked, asking = lab.plane.open_leaf(-1, solicited=False), lab.plane.open_leaf(-1, solicited=True)
    for cid, line, kind in (
        (asked, b"LS+ a\r\n", 4),
        (asked, b"PING\r\n", 4),
        (asked, b"CONNECT {}\r\n", 1),
        (asking, b"LMSG a 0\r\n\r\n", 4),
        (asking, b"INFO {}\r\n", 2),
        (asking, b"-ERR 'x'\r\n", 3),
    ):
        lab.feed(cid, line)
        assert lab.texts.pop()[:2] == (cid, kind)
    lab.feed(asking, b"PING\r\n")
    assert lab.sent(asking) == b"PONG\r\n"


def test_clients_are_counted_without_leaf_nodes() -> None:
    lab = Lab()
    lab.client()
    leaf = lab.leaf()
    assert (lab.plane.statistics()["connections"], lab.plane.statistics()["leafnodes"]) == (1, 1)
    lab.plane.close(leaf, Reason.CLIENT_CLOSED)
    lab.plane.flush()
    assert lab.plane.statistics()["leafnodes"] == 0


def test_another_node_of_the_cluster_gets_what_a_leaf_node_sends_and_wants() -> None:
    plane, peer = Lab(), Lab()
    route, back = plane.plane.open_route(), peer.plane.open_route()

    def exchange() -> None:
        for _ in range(3):
            for _, records in plane.plane.take_routes():
                peer.plane.on_route(back, records)
            for _, records in peer.plane.take_routes():
                plane.plane.on_route(route, records)

    leaf, client = plane.leaf(), peer.client()
    plane.feed(leaf, b"LS+ down\r\nLS+ w Q 3\r\n")
    peer.feed(client, b"SUB up 1\r\nSUB v Q 2\r\n")
    exchange()
    assert plane.sent(leaf) == b"LS+ up\r\nLS+ v Q 1\r\n"
    peer.feed(client, b"PUB down 1\r\na\r\nPUB w r 1\r\nb\r\n")
    plane.feed(leaf, b"LMSG up 1\r\nc\r\nLMSG v | Q 1\r\nd\r\n")
    exchange()
    assert plane.sent(leaf) == b"LMSG down 1\r\na\r\nLMSG w + r Q 1\r\nb\r\n"
    assert peer.sent(client) == b"MSG up 1 1\r\nc\r\nMSG v 2 1\r\nd\r\n"


def test_a_message_does_not_return_to_the_cluster_of_a_leaf_node_over_another_node() -> None:
    one, two = Lab(), Lab()
    there, back = one.plane.open_route(), two.plane.open_route()
    first, second, other = one.leaf(b"l"), two.leaf(b"l"), two.leaf(b"m")
    two.feed(second, b"LS+ x\r\nLS+ x Q 1\r\n")
    two.feed(other, b"LS+ x\r\n")
    for _, records in two.plane.take_routes():
        one.plane.on_route(there, records)
    one.feed(first, b"LMSG x | Q 1\r\na\r\n")
    for _, records in one.plane.take_routes():
        two.plane.on_route(back, records)
    assert b"LMSG" not in two.sent(second)
    assert two.sent(other).endswith(b"LMSG x 1\r\na\r\n")
    one.feed(one.client(), b"PUB x 1\r\nb\r\n")
    for _, records in one.plane.take_routes():
        two.plane.on_route(back, records)
    assert b"LMSG x" in two.sent(second)


def test_what_a_hub_wants_and_sends_stays_with_the_node_that_is_connected_to_it() -> None:
    plane, peer = Lab(), Lab()
    route, back = plane.plane.open_route(), peer.plane.open_route()
    hub, client = plane.leaf(b"h", spoke=True), peer.client()
    peer.feed(client, b"SUB > 1\r\n")
    plane.feed(hub, b"LS+ x\r\n")
    for _, records in peer.plane.take_routes():
        plane.plane.on_route(route, records)
    for _, records in plane.plane.take_routes():
        peer.plane.on_route(back, records)
    assert plane.sent(hub) == b""
    plane.feed(hub, b"LMSG a 1\r\nx\r\n")
    peer.feed(client, b"PUB x 1\r\nx\r\n")
    assert list(plane.plane.take_routes()) == []
    assert list(peer.plane.take_routes()) == []


def test_what_is_allowed_below_one_token_is_not_told_and_sent_below_more() -> None:
    lab = Lab()
    entries = [(b"foo.*", b"")]
    allowed = UserPermissions(publish_allow=None, publish_deny=None, subscribe_allow=entries, subscribe_deny=None)
    leaf, client = lab.leaf(permissions=allowed), lab.client()
    lab.feed(leaf, b"LS+ foo.*\r\nLS+ foo.>\r\n")
    lab.feed(client, b"PUB foo.a.secret 1\r\nx\r\nPUB foo.a 1\r\ny\r\n")
    assert lab.sent(leaf) == b"LMSG foo.a 1\r\ny\r\n"
    assert [text for _, _, text in lab.texts] == [b"foo.>"]


def test_what_is_denied_to_a_queue_is_denied_to_it_behind_a_leaf_node() -> None:
    lab = Lab()
    entries = [(b"foo", b"q")]
    denied = UserPermissions(publish_allow=None, publish_deny=None, subscribe_allow=None, subscribe_deny=entries)
    leaf, client = lab.leaf(permissions=denied), lab.client()
    lab.feed(leaf, b"LS+ foo q 1\r\n")
    lab.feed(client, b"PUB foo 1\r\nx\r\n")
    assert lab.sent(leaf) == b""
    assert [text for _, _, text in lab.texts] == [b"foo"]
