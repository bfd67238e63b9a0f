"""What the compiled plane allows is what a naive matcher does, over every path by which a message comes and goes."""

from collections.abc import Callable, Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.auth.granting import build
from jetraft.api.credentials.permissions import Permissions, ResponseRules, SubjectRules
from jetraft.api.credentials.violations import PUBLISH, REPLY, SUBSCRIBE, texts
from jetraft.api.plane._plane import Plane
from jetraft.api.sessions.connect import ConnectOptions

Violation = tuple[int, str, str]


# -- the naive matcher


def fits(entry: str, subject: str, *, whole_tail: bool = False, empty: bool = False) -> bool:
    """Whether an entry without a queue matches a subject, token by token."""
    wanted, given_ = entry.split("."), subject.split(".")
    if "" in given_ and not empty:
        return False
    for place, token in enumerate(wanted):
        if token == ">":
            return len(given_) > place
        if place >= len(given_) or (token not in ("*", given_[place])):
            return False
        if token == "*" and whole_tail and given_[place] == ">" and place == len(given_) - 1:
            return False
    return len(wanted) == len(given_)


def meets(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether some subject matches both."""
    if not one or not other:
        return not one and not other
    if ">" in (one[0], other[0]):
        return True
    return (one[0] == other[0] or "*" in (one[0], other[0])) and meets(one[1:], other[1:])


def hits(entries: Sequence[str], subject: str, queue: str, **how: bool) -> tuple[bool, bool, bool]:
    """Whether a plain entry matches, one with a queue, and one with this queue."""
    words = [(*entry.split(), "")[:2] for entry in entries]
    found = [name for entry, name in words if fits(entry, subject, **how)]
    queues = [name for name in found if name]
    mine = any(queue and (name == queue or fits(name, queue, whole_tail=True)) for name in queues)
    return "" in found, bool(queues), mine


def may_publish(may: Permissions, subject: str) -> bool:
    plain, _, _ = hits(may.publish.allow, subject, "")
    denied, _, _ = hits(may.publish.deny, subject, "", empty=True)
    return (plain or (not may.publish.allow and may.responses is None)) and not denied


def may_subscribe(may: Permissions, subject: str, queue: str) -> bool:
    if queue == "_sys_":
        return False
    plain, _, mine = hits(may.subscribe.allow, subject, queue, whole_tail=True)
    _, queued, partly = hits(may.subscribe.allow, subject, queue)
    allowed = not may.subscribe.allow or (mine or (plain and partly) if queue and queued else plain)
    plain, _, mine = hits(may.subscribe.deny, subject, queue)
    return allowed and not plain and not mine


def may_receive(may: Permissions, subject: str, queue: str) -> bool:
    plain, _, mine = hits(may.subscribe.deny, subject, queue, empty=True)
    return not plain and not mine


# -- the plane


@attrs.define
class Room:
    """A plane whose clients have these permissions, and what was refused."""

    may: Permissions | None = None
    violations: list[Violation] = attrs.field(factory=list)
    plane: Plane = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.plane = Plane(
            max_payload=1 << 20,
            max_control_line=4096,
            max_pending=64 << 20,
            max_subscriptions=0,
            connect_handler=self.on_connect,
            first_ping_handler=lambda _cid: b"",
            violation_handler=self.on_violation,
        )

    def on_connect(self, _cid: int, text: bytes | None) -> ConnectOptions:
        granted = build(self.may) if self.may is not None and b"free" not in (text or b"") else None
        return ConnectOptions(verbose=False, pedantic=False, headers=True, permissions=granted)

    def on_violation(self, _cid: int, kind: int, subject: bytes, queue: bytes, _sid: bytes) -> bytes:
        self.violations.append((kind, subject.decode(), queue.decode()))
        return b"-ERR 'x'\r\n"

    def client(self, *, free: bool = False) -> int:
        cid = self.plane.open(-1, b"")
        self.plane.feed(cid, b"CONNECT %s\r\n" % (b"free" if free else b"x"))
        return cid

    def publish(self, cid: int, subject: str, reply: str = "", *, headers: bool = False) -> None:
        words = f"{subject} {reply}".strip()
        text = f"HPUB {words} 12 12\r\nNATS/1.0\r\n\r\n\r\n" if headers else f"PUB {words} 0\r\n\r\n"
        self.plane.feed(cid, text.encode())

    def taken(self) -> list[Violation]:
        found, self.violations = self.violations, []
        return found

    def received(self, cid: int) -> list[tuple[str, str]]:
        """Subject and subscription of the messages."""
        self.plane.flush()
        lines = [line.split(" ") for line in self.plane.take(cid).decode().split("\r\n") if line.startswith("MSG")]
        return [(line[1], line[2]) for line in lines]


TOKEN = st.sampled_from(["a", "b", "c", "*"])
ENTRY = st.lists(TOKEN, min_size=1, max_size=3).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens[:-1], ">"])])
)
NAME = st.sampled_from(["q", "r", "q.x", "q.*", "*", ">", "v*"])
ENTRIES = st.lists(ENTRY, max_size=4).map(tuple)
WITH_QUEUES = st.lists(st.one_of(ENTRY, st.tuples(ENTRY, NAME).map(" ".join)), max_size=5).map(tuple)
LITERAL = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(".".join)
SUBJECT = st.lists(st.sampled_from(["a", "b", "c", "*", ">", ""]), min_size=1, max_size=3).map(".".join).filter(bool)
QUEUE = st.sampled_from(["", "q", "r", "q.x", "q.y", "v*", "_sys_"])
PERMISSIONS = st.builds(
    Permissions,
    publish=st.builds(SubjectRules, allow=ENTRIES, deny=ENTRIES),
    subscribe=st.builds(SubjectRules, allow=WITH_QUEUES, deny=WITH_QUEUES),
)


@given(PERMISSIONS, st.lists(st.tuples(SUBJECT, st.booleans()), max_size=30))
def test_what_is_published_is_judged_as_the_lists_say(may: Permissions, sent: list[tuple[str, bool]]) -> None:
    room = Room(may)
    cid = room.client()
    everything = room.plane.add_sink(room.plane.account("$G"), b">", lambda _batch: None)
    for _ in range(2):  # found out, then remembered
        for subject, headers in sent:
            room.publish(cid, subject, headers=headers)
    room.plane.remove_sink(everything)
    refused = [(PUBLISH, subject, "") for subject, _ in sent if not may_publish(may, subject)]
    assert room.taken() == refused * 2


@given(PERMISSIONS, st.lists(LITERAL, max_size=30))
def test_what_comes_in_one_read_is_judged_one_by_one(may: Permissions, subjects: list[str]) -> None:
    room = Room(may)
    cid, listener = room.client(), room.client(free=True)
    room.plane.feed(listener, b"SUB > 1\r\n")
    room.plane.feed(cid, "".join(f"PUB {subject} 0\r\n\r\n" for subject in subjects).encode())
    assert [subject for subject, _ in room.received(listener)] == [s for s in subjects if may_publish(may, s)]


@given(PERMISSIONS, st.lists(st.tuples(SUBJECT, QUEUE), max_size=20))
def test_subscriptions_are_judged_as_the_lists_say(may: Permissions, subs: list[tuple[str, str]]) -> None:
    room = Room(may)
    cid = room.client()
    for sid, (subject, queue) in enumerate(subs):
        words = " ".join(filter(None, [subject, queue, str(sid)]))
        room.plane.feed(cid, f"SUB {words}\r\n".encode())
    expected = [(SUBSCRIBE, subject, queue) for subject, queue in subs if not may_subscribe(may, subject, queue)]
    assert room.taken() == expected


@pytest.mark.parametrize(
    ("subject", "queue", "is_allowed"),
    [(">", "q1", False), (">", "q.1", True), (">", "", True), ("x", "q1", False), ("x", "q.1", True)],
)
def test_a_queue_that_an_entry_for_a_part_of_the_subject_does_not_name_is_refused(
    subject: str, queue: str, *, is_allowed: bool
) -> None:
    room = Room(Permissions(subscribe=SubjectRules(allow=(">", "* q.*"))))
    room.plane.feed(room.client(), f"SUB {subject} {queue} 1\r\n".encode())
    assert room.taken() == ([] if is_allowed else [(SUBSCRIBE, subject, queue)])


def local(room: Room, _other: Room) -> Callable[[str], None]:
    """A publisher beside the receiver."""
    cid = room.client(free=True)
    return lambda subject: room.publish(cid, subject)


def remote(room: Room, other: Room) -> Callable[[str], None]:
    """A publisher at another node."""
    cid, there, here = other.client(free=True), other.plane.open_route(), room.plane.open_route()

    def exchange() -> None:
        for _, records in room.plane.take_routes():
            other.plane.on_route(there, records)
        for _, records in other.plane.take_routes():
            room.plane.on_route(here, records)

    def publish(subject: str) -> None:
        exchange()
        other.publish(cid, subject)
        exchange()

    return publish


def from_python(room: Room, _other: Room) -> Callable[[str], None]:
    """A message of this node's own, as JetStream's are."""

    def publish(subject: str) -> None:
        room.plane.send(room.plane.account("$G"), subject.encode())

    return publish


@pytest.mark.parametrize("path", [local, remote, from_python])
@given(may=PERMISSIONS, subs=st.lists(st.tuples(ENTRY, QUEUE), max_size=6), subjects=st.lists(LITERAL, max_size=10))
def test_what_is_denied_is_not_delivered(
    path: Callable[[Room, Room], Callable[[str], None]],
    may: Permissions,
    subs: list[tuple[str, str]],
    subjects: list[str],
) -> None:
    room, other = Room(may), Room()
    cid, publish = room.client(), path(room, other)
    queues: set[str] = set()
    accepted: list[tuple[str, str, str]] = []
    for sid, (subject, queue) in enumerate(subs):
        if queue in queues:  # which member of a group gets a message is chance
            continue
        queues |= {queue} - {""}
        words = " ".join(filter(None, [subject, queue, str(sid)]))
        room.plane.feed(cid, f"SUB {words}\r\n".encode())
        if may_subscribe(may, subject, queue):
            accepted.append((subject, queue, str(sid)))
    room.plane.take(cid)
    is_filtered = any(
        meets(entry.split()[0].split("."), sub.split(".")) for entry in may.subscribe.deny for sub, _, _ in accepted
    )
    for subject in subjects:
        publish(subject)
        expected = [
            (subject, sid)
            for sub, queue, sid in accepted
            if fits(sub, subject) and (not is_filtered or may_receive(may, subject, queue))
        ]
        assert sorted(room.received(cid)) == sorted(expected)


@given(
    st.integers(-1, 3).filter(bool),
    ENTRIES,
    st.lists(st.tuples(st.sampled_from(["request", "answer"]), LITERAL), max_size=30),
)
def test_answers_are_counted_as_nats_server_counts_them(
    most: int, deny: tuple[str, ...], actions: list[tuple[str, str]]
) -> None:
    may = Permissions(publish=SubjectRules(deny=deny), responses=ResponseRules(max_msgs=most, expires_ns=-1))
    room = Room(may)
    cid, requester = room.client(), room.client(free=True)
    room.plane.feed(cid, b"SUB service 1\r\n")
    counts: dict[str, int] = {}

    def answers(reply: str) -> bool:
        if reply not in counts:
            return False
        counts[reply] += 1
        if 0 < most < counts[reply]:
            del counts[reply]
            return False
        return True

    for kind, reply in actions:
        if kind == "request":
            room.publish(requester, "service", reply)
            if not answers(reply):
                counts[reply] = 0
            continue
        room.publish(cid, reply)
        assert room.taken() == ([] if answers(reply) else [(PUBLISH, reply, "")])


def test_an_answer_may_be_too_late() -> None:
    room = Room(Permissions(responses=ResponseRules(expires_ns=1)))
    cid, requester = room.client(), room.client(free=True)
    room.plane.feed(cid, b"SUB service 1\r\n")
    room.publish(requester, "service", "r")
    room.publish(cid, "r")
    assert room.taken() == [(PUBLISH, "r", "")]


def test_requests_that_nobody_answers_are_forgotten_from_the_oldest_on() -> None:
    room = Room(Permissions(responses=ResponseRules(max_msgs=-1, expires_ns=-1)))
    cid, requester = room.client(), room.client(free=True)
    room.plane.feed(cid, b"SUB service 1\r\n")
    bound = 1 << 16
    for number in range(bound + 10):
        room.publish(requester, "service", f"r.{number}")
        room.plane.take(cid)
    for number in (9, 10, bound + 9):
        room.publish(cid, f"r.{number}")
    assert room.taken() == [(PUBLISH, "r.9", "")]


def test_more_subjects_than_are_remembered_are_judged_right() -> None:
    room = Room(Permissions(publish=SubjectRules(allow=("s.*.even",))))
    cid = room.client()
    subjects = [f"s.{number}.{'odd' if number % 2 else 'even'}" for number in range(20_000)]
    for _ in range(2):
        for subject in subjects:
            room.publish(cid, subject)
        assert [subject for _, subject, _ in room.taken()] == subjects[1::2]
        room.plane.take(cid)


def test_a_list_of_a_thousand_entries_is_judged_right() -> None:
    allow = tuple(f"tenant.{number}.*.>" for number in range(1000))
    room = Room(Permissions(publish=SubjectRules(allow=allow, deny=tuple(f"tenant.{n}.x.no" for n in range(1000)))))
    cid = room.client()
    for number in range(1000):
        room.publish(cid, f"tenant.{number}.x.yes")
        room.publish(cid, f"tenant.{number}.x.no")
    room.publish(cid, "tenant.1000.x.yes")
    found = [subject for _, subject, _ in room.taken()]
    assert found == [*(f"tenant.{number}.x.no" for number in range(1000)), "tenant.1000.x.yes"]


def test_another_connect_has_another_users_permissions_from_then_on() -> None:
    room = Room(Permissions(publish=SubjectRules(allow=("a",)), subscribe=SubjectRules(deny=("b",))))
    cid = room.client(free=True)
    # In one read: what was permitted to the one user must not be so for the other.
    room.plane.feed(cid, b"SUB * 1\r\nPUB c 0\r\n\r\nCONNECT x\r\nPUB c 0\r\n\r\nPUB a 0\r\n\r\n")
    assert room.taken() == [(PUBLISH, "c", "")]
    assert room.received(cid) == [("c", "1")]


@pytest.mark.parametrize("free", [True, False])
def test_what_a_connection_subscribed_to_ends_with_another_connect(free: bool) -> None:  # noqa: FBT001  (a parameter)
    room = Room(Permissions(subscribe=SubjectRules(allow=("a",))))
    cid, other = room.client(free=True), room.client(free=True)
    room.plane.feed(cid, b"SUB b 1\r\nSUB b q 2\r\nSUB * 3\r\nSUB a 4\r\n")
    room.plane.feed(cid, b"CONNECT free\r\n" if free else b"CONNECT x\r\n")
    assert room.plane.subscriptions_from(cid, 0, 100)[2] == []
    room.publish(other, "b")
    room.publish(other, "a")
    assert room.received(cid) == []
    room.plane.feed(cid, b"SUB a 4\r\n")
    room.publish(other, "a")
    assert room.received(cid) == [("a", "4")]


def test_what_came_before_the_first_connect_stays() -> None:
    room = Room(Permissions())
    cid = room.plane.open(-1, b"")
    room.plane.feed(cid, b"SUB a 1\r\nCONNECT free\r\n")
    assert room.plane.subscriptions_from(cid, 0, 100)[2][0][:3] == (b"$G", b"a", b"")


@pytest.mark.parametrize(
    ("subject", "reply", "refused"),
    [
        ("a", "$JS.ACK.x", [(REPLY, "$JS.ACK.x", "")]),
        ("a", "$JS.ACK.", []),
        ("a", "$JS.API.x", []),
        ("a", "_R_.", [(REPLY, "_R_.", "")]),
        ("a", "_GR_.x", [(REPLY, "_GR_.x", "")]),
        ("a", "_GR_.", []),
        ("a", "$GR.x", [(REPLY, "$GR.x", "")]),
        ("a", "_INBOX.x", []),
        ("_GR_.x", "", [(PUBLISH, "_GR_.x", "")]),
        ("$GR.x", "", [(PUBLISH, "$GR.x", "")]),
        ("$GR.", "", []),
        ("$JS.ACK.x", "", []),
    ],
)
def test_some_spaces_are_the_servers_own(subject: str, reply: str, refused: list[Violation]) -> None:
    room = Room()
    room.publish(room.client(), subject, reply)
    assert room.taken() == refused


@pytest.mark.parametrize(
    ("found", "said", "logged"),
    [
        ((PUBLISH, b'x"\\\xc3\xa9\x01', b"", b""), 'Publish to "x\\"\\\\é\\x01"', 'Subject "x\\"\\\\é\\x01"'),
        ((PUBLISH, b"x\xff\xe2\x80", b"", b""), 'Publish to "x\\xff\\xe2\\x80"', 'Subject "x\\xff\\xe2\\x80"'),
        ((REPLY, b"r", b"", b""), 'Publish with Reply of "r"', 'Reply "r"'),
        ((SUBSCRIBE, b"s", b"", b"7"), 'Subscription to "s"', 'Subject "s", SID 7'),
        ((SUBSCRIBE, b"s", b"q", b"7"), 'Subscription to "s" using queue "q"', 'Subject "s", Queue: "q", SID 7'),
    ],
)
def test_texts_quote_as_go_does(found: tuple[int, bytes, bytes, bytes], said: str, logged: str) -> None:
    error, line = texts(*found)
    assert error == f"Permissions Violation for {said}"
    assert line.partition(" Violation - ")[2] == logged
