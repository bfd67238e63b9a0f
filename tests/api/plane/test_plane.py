"""The plane against a plain Python model: who receives a message, and what goes over the wire."""

import contextlib
import socket
from collections import Counter
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetraft.api.plane._plane import Plane, RouteFormatError
from jetraft.api.plane.reasons import Reason
from jetraft.api.sessions.connect import ConnectOptions

QUIET = b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true}'
TOKENS = st.sampled_from(["a", "b", "cc"])
LITERALS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.tuples(
    st.lists(st.sampled_from(["a", "b", "cc", "*"]), max_size=3), st.sampled_from(["a", "*", ">"])
).map(lambda parts: ".".join([*parts[0], parts[1]]))


Action = tuple[Literal["sub"], str, bool] | tuple[Literal["unsub"], int, None] | tuple[Literal["pub"], str, int]


EMPTIES = st.lists(st.sampled_from(["a", "b", "cc", ""]), min_size=1, max_size=4).map(".".join).filter(bool)


def matches(pattern: str, subject: str) -> bool:
    p, s = pattern.split("."), subject.split(".")
    if "" in s:
        return False
    for i, token in enumerate(p):
        if token == ">":
            return len(s) > i
        if i >= len(s) or token not in ("*", s[i]):
            return False
    return len(p) == len(s)


def answer_of(text: bytes) -> ConnectOptions:
    """What a session that admits everybody answers."""
    return ConnectOptions(
        verbose=b'"verbose":false' not in text,
        pedantic=b'"pedantic":false' not in text,
        headers=b'"headers":true' in text,
        no_responders=b'"no_responders":true' in text,
    )


def make_plane(**limits: int) -> Plane:
    values: dict[str, Any] = {
        "max_payload": 1 << 20,
        "max_control_line": 4096,
        "max_pending": 64 << 20,
        "max_subscriptions": 0,
    } | limits
    return Plane(
        **values,
        connect_handler=lambda _cid, text: answer_of(text or b""),
        first_ping_handler=lambda _cid: b"",
        violation_handler=lambda _cid, _kind, _subject, _queue, _sid: b"",
        leaf_handler=None,
    )


def client(plane: Plane, options: bytes = QUIET) -> int:
    cid = plane.open(-1, b"")
    plane.feed(cid, b"CONNECT " + options + b"\r\n")
    return cid


def feed_all(plane: Plane, cid: int, data: bytes) -> None:
    """Have a connection send this, and take turns until all of it is acted on."""
    plane.feed(cid, data)
    while plane.turn():
        pass


def received(plane: Plane, cid: int) -> list[bytes]:
    """The payload lines of the MSGs that wait for a connection (payloads here hold no line ends)."""
    lines = plane.take(cid).split(b"\r\n")
    return [lines[i + 1] for i, line in enumerate(lines) if line.startswith(b"MSG ")]


@given(st.lists(st.tuples(PATTERNS, st.booleans()), max_size=20), st.lists(LITERALS | EMPTIES, min_size=1, max_size=10))
@settings(deadline=None, max_examples=150)
def test_every_matching_subscription_gets_each_message_once(subs: list[tuple[str, bool]], subjects: list[str]) -> None:
    plane = make_plane()
    cids = [client(plane) for _ in subs]
    publisher = client(plane)
    for i, ((pattern, _), cid) in enumerate(zip(subs, cids, strict=True)):
        plane.feed(cid, f"SUB {pattern} {i}\r\n".encode())
    for n, subject in enumerate(subjects):
        plane.feed(publisher, f"PUB {subject} {len(str(n))}\r\n{n}\r\n".encode())
    plane.flush()
    for (pattern, _), cid in zip(subs, cids, strict=True):
        expected = [str(n).encode() for n, subject in enumerate(subjects) if matches(pattern, subject)]
        assert received(plane, cid) == expected


@pytest.mark.parametrize("empty", ["_INBOX.a..x", "_INBOX.a.x.", "_INBOX.a...", "_INBOX..a.x", "._INBOX.a.x"])
def test_an_answer_for_all_inboxes_of_a_prefix_is_not_that_of_empty_tokens(empty: str) -> None:
    plane = make_plane()
    inbox, publisher = client(plane), client(plane)
    plane.feed(inbox, b"SUB _INBOX.a.> 1\r\n")
    for subject in ("_INBOX.a.x", empty, "_INBOX.a.y", empty, "_INBOX.a.z.z"):
        plane.feed(publisher, f"PUB {subject} {len(subject)}\r\n{subject}\r\n".encode())
    assert received(plane, inbox) == [b"_INBOX.a.x", b"_INBOX.a.y", b"_INBOX.a.z.z"]


def test_a_subscription_too_many_is_refused_and_the_connection_goes_on() -> None:
    plane = make_plane(max_subscriptions=2)
    cid = client(plane)
    plane.feed(cid, b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\nSUB a 1\r\nPUB a 1\r\nx\r\n")
    plane.feed(cid, b"UNSUB 1\r\nSUB c 3\r\nPUB c 1\r\ny\r\n")
    refused = b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert plane.take(cid) == refused * 2 + b"MSG a 1 1\r\nx\r\nMSG c 3 1\r\ny\r\n"


def test_one_of_the_subscriptions_to_a_reply_learns_that_nobody_responds() -> None:
    plane = make_plane()
    cid = client(plane)
    plane.feed(cid, b"SUB in.1 1\r\nSUB in.* 2\r\nPUB nobody in.1 0\r\n\r\n")
    assert plane.take(cid).count(b"503") == 1


@given(
    st.lists(st.tuples(PATTERNS, st.sampled_from(["", "q", "r"]), st.integers(0, 3)), max_size=16),
    st.lists(st.tuples(st.sampled_from(["pub", "unsub"]), LITERALS, st.integers(0, 15)), max_size=30),
)
@settings(deadline=None, max_examples=150)
def test_queue_groups_take_one_member_and_changes_take_effect_at_once(
    subs: list[tuple[str, str, int]], actions: list[tuple[str, str, int]]
) -> None:
    plane = make_plane()
    cids = [client(plane) for _ in range(4)]
    publisher = client(plane)
    live = {}
    for sid, (pattern, queue, owner) in enumerate(subs):
        plane.feed(cids[owner], f"SUB {pattern} {queue} {sid}\r\n".encode())
        live[sid] = (pattern, queue, owner)
    for kind, subject, target in actions:
        if kind == "unsub":
            if target in live:
                plane.feed(cids[live.pop(target)[2]], f"UNSUB {target}\r\n".encode())
            continue
        plane.feed(publisher, f"PUB {subject} 1\r\nx\r\n".encode())
        plain = sum(1 for pattern, queue, _ in live.values() if not queue and matches(pattern, subject))
        groups = {queue for pattern, queue, _ in live.values() if queue and matches(pattern, subject)}
        got = sum(len(received(plane, cid)) for cid in cids)
        assert got == plain + len(groups)
    plane.flush()


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("sub"), PATTERNS, st.booleans()),
            st.tuples(st.just("unsub"), st.integers(0, 9), st.none()),
            st.tuples(st.just("pub"), LITERALS, st.integers(1, 4)),
        ),
        max_size=40,
    )
)
@settings(deadline=None, max_examples=200)
def test_acks_that_begin_alike_go_where_each_of_them_belongs(actions: list[Action]) -> None:
    plane = make_plane()
    listener, publisher = client(plane), client(plane)
    live: list[str] = []
    sent = 0
    for action in actions:
        match action:
            case ("sub", pattern, is_ack):
                live.append(f"$JS.ACK.{pattern}" if is_ack else pattern)
                plane.feed(listener, f"SUB {live[-1]} {len(live) - 1}\r\n".encode())
            case ("unsub", sid, _) if sid < len(live):
                live[sid] = ""
                plane.feed(listener, f"UNSUB {sid}\r\n".encode())
            case ("pub", what, more):
                for subject in [f"$JS.ACK.{what}" + f".{number}" * more for number in range(3)]:
                    sent += 1
                    plane.feed(publisher, f"PUB {subject} {len(str(sent))}\r\n{sent}\r\n".encode())
                    expected = [str(sent).encode()] * sum(1 for one in live if one and matches(one, subject))
                    assert received(plane, listener) == expected
                plane.flush()


def test_bytes_cut_anywhere_are_parsed_the_same() -> None:
    stream = (
        b"CONNECT "
        + QUIET
        + b"\r\nSUB a.* 1\r\nPING\r\nPUB a.b 5\r\nhello\r\nHPUB a.c r.1 12 15\r\nNATS/1.0\r\n\r\nabc\r\nUNSUB 1\r\n"
    )
    whole = make_plane()
    cid = whole.open(-1, b"")
    whole.feed(cid, stream)
    expected = whole.take(cid)
    assert b"HMSG a.c 1 r.1 12 15\r\nNATS/1.0\r\n\r\nabc\r\n" in expected
    for cut in range(1, len(stream)):
        plane = make_plane()
        cid = plane.open(-1, b"")
        plane.feed(cid, stream[:cut])
        plane.feed(cid, stream[cut:])
        assert plane.take(cid) == expected


def test_unsub_max_ends_after_that_many_messages_even_within_one_read() -> None:
    plane = make_plane()
    cid = client(plane)
    plane.feed(cid, b"SUB a 1\r\nUNSUB 1 2\r\n" + b"PUB a 1\r\nx\r\n" * 5)
    assert len(received(plane, cid)) == 2
    assert plane.subscriptions_from(cid, 0, 100)[2] == []


def test_no_responders_answers_only_on_the_requesters_own_reply_subscription() -> None:
    plane = make_plane()
    asker, other = client(plane), client(plane)
    plane.feed(asker, b"SUB inbox.* 1\r\n")
    plane.feed(other, b"SUB inbox.* 1\r\n")
    plane.feed(asker, b"PUB nobody inbox.7 0\r\n\r\n")
    assert plane.take(asker) == b"HMSG inbox.7 1 38 38\r\nNATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n\r\n"
    assert plane.take(other) == b""


def test_a_message_that_misses_its_line_end_closes_with_the_protocol_text() -> None:
    plane = make_plane()
    cid = client(plane)
    plane.feed(cid, b"PUB a 3\r\nabcdPING\r\n")
    assert plane.take(cid) == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert [(c, r) for c, r, _ in plane.flush()] == [(cid, Reason.PROTOCOL_VIOLATION)]


@pytest.mark.parametrize("line", [b"PUB %s 1\r\nx\r\n", b"PUB a %s 1\r\nx\r\n", b"SUB %s 2\r\n", b"SUB a q %s\r\n"])
def test_a_name_that_is_longer_than_its_length_can_say_is_refused(line: bytes) -> None:
    """65,537 bytes have a length of 1 in 16 bits: the message went to those who listen to the first of them."""
    plane = make_plane(max_control_line=1 << 20)
    near, cid = client(plane), client(plane, b'{"verbose":false,"pad":"%s"}' % (b"x" * 70_000))
    plane.feed(near, b"SUB a 1\r\n")
    plane.feed(cid, line % (b"a" * 60_000))
    assert plane.take(cid) == b""
    plane.take(near)
    plane.feed(cid, line % (b"a" * 65_537))
    assert plane.take(cid) == b"-ERR 'maximum control line exceeded'\r\n"
    assert plane.take(near) == b""
    assert [(c, r) for c, r, _ in plane.flush()] == [(cid, Reason.MAXIMUM_CONTROL_LINE_EXCEEDED)]


def test_a_receiver_beyond_max_pending_is_closed_and_others_are_not() -> None:
    plane = make_plane(max_pending=1 << 20)
    slow, quick, publisher = client(plane), client(plane), client(plane)
    plane.feed(slow, b"SUB a 1\r\n")
    plane.feed(quick, b"SUB a 1\r\n")
    for _ in range(20):
        plane.feed(publisher, b"PUB a 100000\r\n" + b"x" * 100000 + b"\r\n")
        plane.take(quick)
    assert [(c, r) for c, r, _ in plane.flush()] == [(slow, Reason.SLOW_CONSUMER_PENDING)]
    assert plane.statistics()["slow_consumers"] == 1


def test_a_sink_gets_capture_records_once_a_turn() -> None:
    plane = make_plane()
    batches: list[bytes] = []
    plane.add_sink(plane.account("$G"), b"orders.>", batches.append)
    cid = client(plane)
    plane.feed(cid, b"PUB orders.1 r.1 2\r\nhi\r\nHPUB orders.2 12 14\r\nNATS/1.0\r\n\r\nyo\r\n")
    plane.run_sinks()
    assert len(batches) == 1
    length, hdr, payload = (int.from_bytes(batches[0][i : i + 4], "little") for i in (0, 4, 8))
    assert (length, hdr, payload) == (20 + 8 + 3 + 2, 0, 2)
    assert batches[0][20:length] == b"orders.1r.1hi"
    assert batches[0][length + 20 :] == b"orders.2NATS/1.0\r\n\r\nyo"


def joined_planes() -> tuple[Plane, Plane, int, int]:
    left, right = make_plane(), make_plane()
    return left, right, left.open_route(), right.open_route()


def exchange(left: Plane, right: Plane, left_route: int, right_route: int) -> None:
    for source, sink, route in ((left, right, right_route), (right, left, left_route)) * 2:
        for _, records in source.take_routes():
            sink.on_route(route, records)


@given(
    st.lists(st.tuples(st.integers(0, 1), PATTERNS, st.sampled_from(["", "q"])), max_size=12),
    st.lists(LITERALS, min_size=1, max_size=6),
)
@settings(deadline=None, max_examples=100)
def test_two_nodes_deliver_like_one(subs: list[tuple[int, str, str]], subjects: list[str]) -> None:
    left, right, lr, rr = joined_planes()
    planes = (left, right)
    clients = [(planes[side], client(planes[side])) for side, _, _ in subs]
    for sid, ((_, pattern, queue), (plane, cid)) in enumerate(zip(subs, clients, strict=True)):
        plane.feed(cid, f"SUB {pattern} {queue} {sid}\r\n".encode())
    exchange(left, right, lr, rr)
    publisher = client(left)
    for subject in subjects:
        left.feed(publisher, f"PUB {subject} 1\r\nx\r\n".encode())
        exchange(left, right, lr, rr)
        got = Counter({i: len(received(plane, cid)) for i, (plane, cid) in enumerate(clients)})
        plain = {i for i, (_, pattern, queue) in enumerate(subs) if not queue and matches(pattern, subject)}
        grouped = [i for i, (_, pattern, queue) in enumerate(subs) if queue and matches(pattern, subject)]
        assert {i for i in plain if got[i] == 1} == plain
        assert sum(got[i] for i in grouped) == (1 if grouped else 0)
        assert sum(got.values()) == len(plain) + bool(grouped)


def test_interest_that_ended_is_not_sent_to_peers() -> None:
    left, right, lr, rr = joined_planes()
    cid = client(right)
    right.feed(cid, b"SUB a.b 1\r\nSUB a.b 2\r\n")
    exchange(left, right, lr, rr)
    assert left.has_interest(left.account("$G"), b"a.b")
    right.feed(cid, b"UNSUB 1\r\n")
    exchange(left, right, lr, rr)
    assert left.has_interest(left.account("$G"), b"a.b")
    right.close(cid, Reason.CLIENT_CLOSED)
    right.flush()
    exchange(left, right, lr, rr)
    assert not left.has_interest(left.account("$G"), b"a.b")


def test_what_waits_for_a_receiver_is_known_by_its_subject() -> None:
    left, right, lr, rr = joined_planes()
    near, far = client(left), client(right)
    left.feed(near, b"SUB near.> 1\r\nSUB near.x q 2\r\n")
    right.feed(far, b"SUB far 1\r\n")
    exchange(left, right, lr, rr)
    left.take(near)
    assert left.waiting_bytes(left.account("$G"), b"near.x") == (0, [])
    assert left.waiting_bytes(left.account("$G"), b"nobody") == (0, [])
    left.send(left.account("$G"), b"near.x", payload=b"x" * 1000)
    assert 2000 < left.waiting_bytes(left.account("$G"), b"near.x")[0] < 2200
    assert left.waiting_bytes(left.account("$G"), b"near.y") == left.waiting_bytes(left.account("$G"), b"near.x")
    left.send(left.account("$G"), b"far", payload=b"x" * 1000)
    waiting, routes = left.waiting_bytes(left.account("$G"), b"far")
    assert routes == [lr]
    assert 1000 < waiting < 1200


def test_a_peer_that_comes_later_learns_all_interest_and_its_loss_ends_it() -> None:
    left, right = make_plane(), make_plane()
    cid = client(left)
    left.feed(cid, b"SUB a.> 1\r\nSUB b q 2\r\n")
    lr, rr = left.open_route(), right.open_route()
    exchange(left, right, lr, rr)
    assert right.has_interest(right.account("$G"), b"a.x")
    assert right.has_interest(right.account("$G"), b"b")
    right.close_route(rr)
    assert not right.has_interest(right.account("$G"), b"a.x")
    assert not right.has_interest(right.account("$G"), b"b")


@given(st.binary(max_size=80))
@settings(deadline=None)
def test_malformed_peer_records_are_refused(noise: bytes) -> None:
    plane = make_plane()
    route = plane.open_route()
    try:
        plane.on_route(route, noise)
    except RouteFormatError:
        return
    assert plane.statistics()["subscriptions"] >= 0


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=300)
def test_noise_never_breaks_the_plane_and_other_clients_live_on(noise: bytes) -> None:
    plane = make_plane()
    noisy, calm = client(plane), client(plane)
    plane.feed(calm, b"SUB calm 1\r\n")
    plane.feed(noisy, noise)
    plane.flush()
    plane.feed(calm, b"PUB calm 1\r\nx\r\n")
    assert received(plane, calm) == [b"x"]


def test_one_send_carries_what_a_turn_collected() -> None:
    plane = make_plane()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)  # noqa: FBT003
    cid = plane.open(ours.detach(), b"")
    theirs.sendall(b"CONNECT " + QUIET + b"\r\nSUB a 1\r\n" + b"PUB a 1\r\nx\r\n" * 10 + b"PING\r\n")
    plane.turn()
    before = plane.statistics()["sends"]
    plane.flush()
    assert plane.statistics()["sends"] == before + 1
    assert theirs.recv(4096) == b"MSG a 1 1\r\nx\r\n" * 10 + b"PONG\r\n"
    plane.close(cid, Reason.KICKED)
    plane.flush()
    assert theirs.recv(10) == b""
    theirs.close()


def test_much_is_sent_in_the_middle_of_a_turn_and_little_waits_for_its_end() -> None:
    plane = make_plane()
    sockets = [socket.socketpair() for _ in range(2)]
    for (ours, theirs), subject in zip(sockets, (b"much", b"little"), strict=True):
        ours.setblocking(False)  # noqa: FBT003
        plane.open(ours.detach(), b"")
        theirs.sendall(b"CONNECT " + QUIET + b"\r\nSUB " + subject + b" 1\r\n")
        theirs.setblocking(False)  # noqa: FBT003
        plane.turn()
    plane.flush()
    plane.send(plane.account("$G"), b"much", payload=b"x" * 20_000)
    plane.send(plane.account("$G"), b"little", payload=b"y")
    plane.send_much()
    assert sockets[0][1].recv(1 << 20) == b"MSG much 1 20000\r\n" + b"x" * 20_000 + b"\r\n"
    with pytest.raises(BlockingIOError):
        sockets[1][1].recv(1)
    plane.send(plane.account("$G"), b"much", payload=b"z")
    plane.flush()
    assert sockets[0][1].recv(1 << 20) == b"MSG much 1 1\r\nz\r\n"
    assert sockets[1][1].recv(1 << 20) == b"MSG little 1 1\r\ny\r\n"
    for _, theirs in sockets:
        theirs.close()


BLANKS = st.lists(st.sampled_from([b" ", b"\t", b"\r"]), min_size=1, max_size=9).map(b"".join)
WORDS = st.lists(st.integers(1, 255).filter(lambda byte: byte not in b" \t\r\n.*>"), min_size=1, max_size=40).map(bytes)


@given(BLANKS, WORDS, BLANKS, WORDS, BLANKS)
@settings(deadline=None)
def test_only_blanks_separate_arguments(
    first: bytes, subject: bytes, second: bytes, reply: bytes, third: bytes
) -> None:
    plane = make_plane()
    cid = client(plane)
    plane.feed(cid, b"SUB > 1\r\nPUB" + b" " + first + subject + second + reply + third + b"2\r\nhi\r\n")
    assert plane.take(cid) == b"MSG " + subject + b" 1 " + reply + b" 2\r\nhi\r\n"


@pytest.mark.parametrize("size", [1, 4096, 1 << 20])
def test_payloads_up_to_the_limit_arrive_whole(size: int) -> None:
    plane = make_plane()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)  # noqa: FBT003
    plane.open(ours.detach(), b"")
    text = b"CONNECT " + QUIET + b"\r\nSUB a 1\r\nPUB a %d\r\n" % size + b"x" * size + b"\r\n"
    theirs.setblocking(False)  # noqa: FBT003
    got, sent = b"", 0
    while len(got) < size + len(b"MSG a 1 %d\r\n" % size) + 2:
        if sent < len(text):
            with contextlib.suppress(BlockingIOError):
                sent += theirs.send(text[sent:])
        plane.turn()
        plane.flush()
        with contextlib.suppress(BlockingIOError):
            got += theirs.recv(1 << 20)
    assert got == b"MSG a 1 %d\r\n" % size + b"x" * size + b"\r\n"
    theirs.close()


def test_a_sink_of_several_subjects_keeps_the_order_of_their_messages() -> None:
    plane = make_plane()
    batches: list[bytes] = []
    handle = plane.add_sink(plane.account("$G"), b"a.>", batches.append)
    plane.extend_sink(handle, b"b")
    cid = client(plane)
    plane.feed(cid, b"PUB a.1 1\r\n1\r\nPUB b 1\r\n2\r\nPUB a.2 1\r\n3\r\n")
    plane.run_sinks()
    assert [part[-1:] for part in (batches[0][:24], batches[0][24:46], batches[0][46:])] == [b"1", b"2", b"3"]
    plane.remove_sink(handle)
    assert not plane.has_interest(plane.account("$G"), b"a.1")
    assert not plane.has_interest(plane.account("$G"), b"b")


def test_more_subjects_than_the_cache_holds_are_routed_right_and_changes_take_effect() -> None:
    plane = make_plane()
    whole, part, publisher = client(plane), client(plane), client(plane)
    subjects = 40_000  # the cache of answers holds 16,384
    plane.feed(whole, b"SUB many.> 1\r\n")
    publishes = b"".join(b"PUB many.%d 5\r\n%05d\r\n" % (n, n) for n in range(subjects))
    everything = [b"%05d" % n for n in range(subjects)]
    for _ in range(2):
        plane.feed(publisher, publishes)
        assert received(plane, whole) == everything
    feed_all(plane, part, b"".join(b"SUB many.%d %d\r\n" % (n, n) for n in range(0, subjects, 7)))
    plane.feed(publisher, publishes)
    assert received(plane, part) == everything[::7]
    feed_all(plane, part, b"".join(b"UNSUB %d\r\n" % n for n in range(7, subjects, 7)))
    plane.feed(publisher, publishes)
    assert received(plane, part) == [b"00000"]


def test_a_subject_that_is_published_again_and_again_is_found_in_the_cache() -> None:
    plane = make_plane()
    publisher = client(plane)
    plane.feed(publisher, b"".join(b"PUB crowd.%d 0\r\n\r\n" % n for n in range(100_000)))
    for _ in range(100):
        plane.feed(publisher, b"PUB hot.a 0\r\n\r\nPUB hot.b 0\r\n\r\n")
    missed = plane.statistics()["cache_misses"]
    plane.feed(publisher, b"PUB hot.a 0\r\n\r\nPUB hot.b 0\r\n\r\n" * 100)
    assert plane.statistics()["cache_misses"] == missed


def test_members_of_one_subject_come_and_go_in_any_order() -> None:
    plane = make_plane()
    cid, publisher = client(plane), client(plane)
    for rounds in range(3):
        for sid in range(1, 8):
            plane.feed(cid, b"SUB one %d\r\n" % sid)
            plane.feed(publisher, b"PUB one 1\r\nx\r\n")
            assert len(received(plane, cid)) == sid
        for left, sid in enumerate([1, 4, 7, 2, 6, 3, 5] if rounds else [7, 6, 5, 4, 3, 2, 1]):
            plane.feed(cid, b"UNSUB %d\r\n" % sid)
            plane.feed(publisher, b"PUB one 1\r\nx\r\n")
            assert len(received(plane, cid)) == 6 - left
