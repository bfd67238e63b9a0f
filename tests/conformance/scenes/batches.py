"""Batch publishing: atomic batches, what refuses them, and what is stored of them."""

from tests.conformance.scenes.rewriting import stored
from tests.conformance.steps import Call, Expect, Publish, Raw, Scene, Step, Subscribe, stream
from tests.harness.raw import header_block

ID = "Nats-Batch-Id"
SEQ = "Nats-Batch-Sequence"
COMMIT = "Nats-Batch-Commit"
MSG_ID = "Nats-Msg-Id"
LAST_ID = "Nats-Expected-Last-Msg-Id"
LAST_SEQ = "Nats-Expected-Last-Sequence"
LAST_SUBJECT_SEQ = "Nats-Expected-Last-Subject-Sequence"
LAST_SUBJECT_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
ROLLUP = "Nats-Rollup"
LEVEL = "Nats-Required-Api-Level"
Header = tuple[str, str]


def member(name: str, batch: str, seq: object, *headers: Header, subject: str = "b.a", payload: bytes = b"x") -> Call:
    """A message of a batch, whose answer is compared."""
    return Call(name=name, subject=subject, payload=payload, headers=((ID, batch), (SEQ, str(seq)), *headers))


def last(name: str, batch: str, seq: int, *headers: Header, subject: str = "b.a") -> Call:
    """The last message of a batch."""
    return member(name, batch, seq, *headers, (COMMIT, "1"), subject=subject)


def pair(
    name: str, *headers: Header, first: Header | None = None, subjects: tuple[str, str] = ("b.a", "b.b")
) -> tuple[Step, ...]:
    """A batch of two messages; `headers` are of the second."""
    begin = member(f"{name}: begun", name, 1, *([first] if first else []), subject=subjects[0])
    return begin, last(f"{name}: committed", name, 2, *headers, subject=subjects[1])


def plain(name: str, *headers: Header, subject: str = "b.a") -> Call:
    """A message of no batch."""
    return Call(name=name, subject=subject, payload=b"x", headers=headers)


def members(batch: str, count: int) -> bytes:
    """The first messages of a batch, as the protocol has them; nothing is asked for in answer."""
    blocks = [header_block(((ID, batch), (SEQ, str(seq)))) for seq in range(1, count + 1)]
    return b"".join(b"HPUB b.a %d %d\r\n%b\r\n" % (len(block), len(block), block) for block in blocks)


def info(name: str, of: str) -> Call:
    """The state of a stream, with its subjects."""
    return Call(name=name, subject=f"$JS.API.STREAM.INFO.{of}", payload={"subjects_filter": ">"})


ATOMIC: tuple[Step, ...] = (
    stream("N"),
    Call(name="disabled", subject="n.a", headers=((ID, "b"), (SEQ, "1"))),
    Call(name="disabled, id too long", subject="n.a", headers=((ID, "b" * 65),)),
    Call(name="an empty id is none", subject="n.a", headers=((ID, ""), (SEQ, "1"))),
    Call(name="a sequence alone", subject="n.a", headers=((SEQ, "1"),)),
    Call(name="a commit alone", subject="n.a", headers=((COMMIT, "1"),)),
    stream("B", allow_atomic=True),
    member("id of 64", "b" * 64, 1),
    member("id of 65", "b" * 65, 1),
    plain("no sequence", (ID, "b")),
    *(
        member(f"sequence {seq!r} of an unknown batch", "b", seq)
        for seq in ("x", "", "-1", "+1", "0", "2", "1000", "1001")
    ),
    *pair("two"),
    last("one", "one", 1),
    member("three: begun", "three", 1),
    member("three: second", "three", 2, subject="b.b"),
    member("three: ended before this one", "three", 3, (COMMIT, "eob"), subject="b.c"),
    member("nothing: ended before the first", "nothing", 1, (COMMIT, "eob")),
    member("bad commit: begun", "bad commit", 1),
    member("bad commit", "bad commit", 2, (COMMIT, "2")),
    last("bad commit: unknown now", "bad commit", 3),
    member("empty commit", "empty commit", 1, (COMMIT, "")),
    member("gap: begun", "gap", 1),
    member("gap", "gap", 3),
    last("gap: unknown now", "gap", 2),
    member("repeated: begun", "repeated", 1),
    member("repeated", "repeated", 1),
    member("level: begun", "level", 1, (LEVEL, "1")),
    member("level that is not served", "level", 2, (LEVEL, "99")),
    last("level: unknown now", "level", 2),
    *pair("levels served", (LEVEL, "2"), first=(LEVEL, "1")),
    *pair('an id with "quotes"'),
    info("state", "B"),
    *(Call(name=f"stored {seq}", subject="$JS.API.STREAM.MSG.GET.B", payload={"seq": seq}) for seq in range(1, 9)),
)
CHECKS: tuple[Step, ...] = (
    stream("B", allow_atomic=True),
    plain("stored", (MSG_ID, "stored"), subject="b.s"),
    *pair("last id", (LAST_ID, "stored")),
    *pair("last id on the first", first=(LAST_ID, "stored")),
    *pair("id twice", (MSG_ID, "1"), first=(MSG_ID, "1")),
    *pair("id of a stored one", (MSG_ID, "stored")),
    *pair("ids", (MSG_ID, "2"), first=(MSG_ID, "1")),
    plain("an id of the batch again", (MSG_ID, "1")),
    plain("the last id is the batch's", (LAST_ID, "2")),
    *pair("last sequence", first=(LAST_SEQ, "4")),
    *pair("last sequence differs", first=(LAST_SEQ, "1")),
    *pair("last sequence on the second", (LAST_SEQ, "7")),
    *pair("last sequence differs on the second", (LAST_SEQ, "1")),
    *pair("last sequence not a number", (LAST_SEQ, "x")),
    *pair("new subjects", (LAST_SUBJECT_SEQ, "0"), first=(LAST_SUBJECT_SEQ, "0"), subjects=("b.n1", "b.n2")),
    *pair("its own subject", (LAST_SUBJECT_SEQ, "0"), first=(LAST_SUBJECT_SEQ, "0"), subjects=("b.n3", "b.n3")),
    *pair(
        "a subject it has written", (LAST_SUBJECT_SEQ, "0"), (LAST_SUBJECT_SUBJECT, "b.n4"), subjects=("b.n4", "b.n5")
    ),
    *pair(
        "a filter over what it has written",
        (LAST_SUBJECT_SEQ, "0"),
        (LAST_SUBJECT_SUBJECT, "b.*"),
        subjects=("b.n6", "b.n7"),
    ),
    *pair("a subject of no message", (LAST_SUBJECT_SEQ, "1"), (LAST_SUBJECT_SUBJECT, "b.q")),
    *pair("subject without sequence", (LAST_SUBJECT_SUBJECT, "b.n1")),
    *pair("other stream", first=("Nats-Expected-Stream", "Z")),
    *pair("ttl not allowed", first=("Nats-TTL", "1s")),
    *pair("counter not allowed", first=("Nats-Incr", "+1")),
    *pair("rollup not allowed", first=(ROLLUP, "sub")),
    *pair("schedule not allowed", first=("Nats-Schedule", "@at 2030-01-01T00:00:00Z")),
    *pair("stream source refused", ("Nats-Stream-Source", "x")),
    info("state", "B"),
)
RULES: tuple[Step, ...] = (
    stream("B", allow_atomic=True, allow_rollup_hdrs=True, allow_msg_ttl=True, max_msg_size=200),
    plain("stored a"),
    plain("stored b", subject="b.b"),
    *pair("rollup of a subject it has written", (ROLLUP, "sub"), subjects=("b.a", "b.a")),
    *pair("rollup of all on the second", (ROLLUP, "all")),
    *pair("rollup of something else", (ROLLUP, "some")),
    *pair("rollups", (ROLLUP, "sub"), first=(ROLLUP, "sub")),
    info("after rollups", "B"),
    *pair("rollup of all on the first", first=(ROLLUP, "all")),
    info("after a rollup of all", "B"),
    *pair("ttl", ("Nats-TTL", "1h"), first=("Nats-TTL", "never")),
    *pair("ttl not a duration", ("Nats-TTL", "x")),
    member("size: begun", "size", 1),
    member("size: too large", "size", 2, payload=bytes(300)),
    last("size: goes on", "size", 2),
    stream("D", allow_atomic=True, discard="new", max_msgs=3),
    plain("one is there", subject="d.a"),
    member("three: first", "three", 1, subject="d.a"),
    member("three: second", "three", 2, subject="d.a"),
    last("three do not fit", "three", 3, subject="d.a"),
    *pair("two fit", subjects=("d.a", "d.b")),
    stream("E", allow_atomic=True, discard="new", max_msgs_per_subject=1, discard_new_per_subject=True),
    *pair("one too many of a subject", subjects=("e.a", "e.a")),
    *pair("one of each subject", subjects=("e.a", "e.b")),
    *pair("full subject", subjects=("e.c", "e.a")),
    stream("O", allow_atomic=True, max_msgs=2),
    member("old: first", "old", 1, subject="o.a"),
    member("old: second", "old", 2, subject="o.b"),
    last("old: third", "old", 3, subject="o.c"),
    info("the oldest of the batch has left", "O"),
    stream("Q", allow_atomic=True, no_ack=True),
    Publish(name="no ack: begun", subject="q.a", headers=((ID, "q"), (SEQ, "1"))),
    Call(name="no ack: committed", subject="q.a", headers=((ID, "q"), (SEQ, "2"), (COMMIT, "1")), replies=0),
    stream("S", allow_atomic=True, sealed=False),
    member("before it is sealed", "sealed", 1, subject="s.a"),
    Call(
        name="seal",
        subject="$JS.API.STREAM.UPDATE.S",
        payload={"name": "S", "subjects": ["s.>"], "storage": "file", "allow_atomic": True, "sealed": True},
    ),
    last("sealed", "sealed", 2, subject="s.a"),
)
MANY: tuple[Step, ...] = (
    stream("B", allow_atomic=True),
    Raw(name="fifty begin", data=b"".join(members(f"b{number}", 1) for number in range(50))),
    member("one too many", "more", 1),
    last("one ends", "b0", 2),
    member("room for one", "more", 1),
    Call(
        name="no more batches",
        subject="$JS.API.STREAM.UPDATE.B",
        payload={"name": "B", "subjects": ["b.>"], "storage": "file"},
    ),
    last("disabled now", "b1", 2),
    Call(
        name="batches again",
        subject="$JS.API.STREAM.UPDATE.B",
        payload={"name": "B", "subjects": ["b.>"], "storage": "file", "allow_atomic": True},
    ),
    last("what was staged is gone", "b1", 2),
    Raw(name="a thousand members", data=members("large", 1000)),
    member("a thousand, and an end", "large", 1001, (COMMIT, "eob")),
    Raw(name="a thousand members again", data=members("larger", 1000)),
    last("one more than a thousand", "larger", 1001),
)
ABANDONED: tuple[Step, ...] = (
    Subscribe(name="advisories", subject="$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.>"),
    stream("B", allow_atomic=True),
    member("gap: begun", "gap", 1),
    member("gap", "gap", 3),
    Expect(name="of the gap", of="advisories", count=1),
    member("level: begun", "level", 1),
    member("level", "level", 2, (LEVEL, "99")),
    Expect(name="of the level", of="advisories", count=1),
    member("nothing", "nothing", 1, (COMMIT, "eob")),
    Expect(name="of the end without a message", of="advisories", count=1),
    *pair("refused at the commit", (LAST_SEQ, "9")),
    member("bad commit", "bad", 1, (COMMIT, "2")),
    member("late: begun", "late", 1),
    Expect(name="of a batch without its next message", of="advisories", count=1),
    last("late: unknown now", "late", 2),
)

FAST_INBOX = "_INBOX.fast"
OPS = {"start": 0, "append": 1, "commit": 2, "eob": 3, "ping": 4}


def fast(  # noqa: PLR0913  (the parts of a reply subject)
    batch: str, seq: int, op: str, *headers: Header, flow: int = 2, gaps: str = "fail", answers: int = 1, of: str = "g"
) -> tuple[Step, ...]:
    """A message of a fast batch, and what is answered to its reply subject; all of it is stored when the next comes."""
    name = f"{batch} {seq} {op}"
    reply = f"{FAST_INBOX}.{batch}.{flow}.{gaps}.{seq}.{OPS[op]}.$FI"
    sent = Publish(name=name, subject=f"{of}.a", payload=b"x", reply=reply, headers=headers)
    expected = (Expect(name=f"{name}: answers", of="answers", count=answers),) if answers else ()
    return sent, *expected, Call(name=f"{name}: settled", subject=f"{of}.settled", replies=0 if of == "q" else 1)


def replied(name: str, reply: str, *headers: Header, of: str = "g", answers: int = 1) -> tuple[Step, ...]:
    """A message with this reply subject, and what is answered to it."""
    sent = Publish(name=name, subject=f"{of}.a", payload=b"x", reply=reply, headers=headers)
    return sent, Expect(name=f"{name}: answers", of="answers", count=answers)


BOTH: tuple[Header, ...] = ((ID, "b"), (SEQ, "1"))
DISABLED: tuple[Step, ...] = (
    Subscribe(name="answers", subject=f"{FAST_INBOX}.>"),
    stream("N"),
    stream("A", allow_atomic=True),
    stream("G", allow_batched=True),
    *replied("fast", f"{FAST_INBOX}.u.1.ok.1.0.$FI", of="n"),
    *replied("the suffix alone", f"{FAST_INBOX}.$FI", of="n"),
    *replied("no suffix", f"{FAST_INBOX}.x$FI", of="n"),
    *replied("not at the end", f"{FAST_INBOX}.$FI.x", of="n"),
    *replied("both, none is allowed", f"{FAST_INBOX}.u.1.ok.1.0.$FI", *BOTH, of="n"),
    *replied("both, atomic is allowed", f"{FAST_INBOX}.u.1.ok.1.0.$FI", *BOTH, of="a"),
    *replied("both, fast is allowed", f"{FAST_INBOX}.u.1.ok.1.0.$FI", *BOTH, answers=2),
    *replied("atomic, fast is allowed", f"{FAST_INBOX}.plain", *BOTH),
    *replied("plain", f"{FAST_INBOX}.plain"),
    info("state", "N"),
    info("state of fast", "G"),
)
PATTERNS: tuple[Step, ...] = (
    Subscribe(name="answers", subject=f"{FAST_INBOX}.>"),
    stream("G", allow_batched=True),
    *(
        step
        for number, (pattern, answers) in enumerate(
            (
                ("", 1),
                (".0", 1),
                (".1.0", 1),
                (".ok.1.0", 1),
                (".10.ok.1.0", 1),
                (".flow.x.ok.1.2", 1),
                (".negative.-1.ok.1.2", 1),
                (".signed.+5.ok.1.2", 1),
                (".zero.0.ok.1.2", 1),
                (".wide.99999999999999999999.ok.1.2", 1),
                (".u.10.maybe.1.0", 1),
                (".u.10.OK.1.0", 1),
                (".u.10.ok.x.0", 1),
                (".u.10.ok.0.0", 1),
                (".u.10.ok.-1.0", 1),
                (".u.10.ok.+1.0", 1),
                (".u.10.ok.1.5", 1),
                (".u.10.ok.1.x", 1),
                (".u.10.ok.1.-1", 1),
                (".u.10.ok.1.1", 1),
                (".u.10.ok.1.3", 1),
                (".u.10.ok.1.4", 1),
                (".u.10.ok.2.0", 1),
                (".u.10.ok.2.1", 1),
                (".u.10.ok.2.2", 1),
                (".u.10.ok.2.3", 1),
                (".u.10.ok.2.4", 1),
                (".u.10.ok.0.4", 1),
                ("." + "u" * 64 + ".10.ok.1.2", 1),
                ("." + "u" * 65 + ".10.ok.1.2", 1),
                (".zeros.05.fail.01.02", 1),
            )
        )
        for step in replied(f"{number}: {pattern}", f"{FAST_INBOX}{pattern}.$FI", answers=answers)
    ),
    info("state", "G"),
)
FLOW: tuple[Step, ...] = (
    Subscribe(name="answers", subject=f"{FAST_INBOX}.>"),
    stream("G", allow_batched=True),
    *fast("two", 1, "start"),
    *fast("two", 2, "append"),
    *fast("two", 3, "append", answers=0),
    *fast("two", 4, "append"),
    *fast("two", 4, "ping"),
    *fast("two", 5, "commit"),
    *fast("two", 6, "append"),
    *fast("first", 1, "start", flow=10),
    *fast("shared", 1, "start", flow=10, answers=2),
    *fast("shared", 2, "append", flow=10, answers=0),
    *fast("shared", 3, "append", flow=10),
    *fast("shared", 4, "append", flow=10, answers=0),
    *fast("shared", 5, "eob", flow=10),
    *fast("first", 2, "eob", flow=10),
    *fast("large", 1, "start", flow=1000),
    *fast("large", 2, "eob", flow=1000),
    info("state", "G"),
    *(Call(name=f"stored {seq}", subject="$JS.API.STREAM.MSG.GET.G", payload={"seq": seq}) for seq in (1, 5)),
    stream("Q", allow_batched=True, no_ack=True),
    *fast("quiet", 1, "start", of="q", answers=0),
    *fast("quiet", 2, "append", of="q"),
    *fast("quiet", 3, "commit", of="q"),
)
GAPS: tuple[Step, ...] = (
    Subscribe(name="answers", subject=f"{FAST_INBOX}.>"),
    stream("G", allow_batched=True),
    *fast("ok", 1, "start", gaps="ok"),
    *fast("ok", 4, "append", gaps="ok", answers=2),
    *fast("ok", 3, "append", gaps="ok", answers=2),
    *fast("ok", 5, "append", gaps="ok"),
    *fast("pinged", 1, "start", gaps="ok"),
    *fast("pinged", 5, "ping", gaps="ok", answers=2),
    *fast("pinged", 6, "commit", gaps="ok"),
    *fast("last", 1, "start", gaps="ok"),
    *fast("last", 6, "commit", gaps="ok", answers=2),
    *fast("end", 1, "start", gaps="ok"),
    *fast("end", 5, "eob", gaps="ok", answers=2),
    *fast("fail", 1, "start"),
    *fast("fail", 3, "append", answers=2),
    *fast("fail", 2, "append"),
    *fast("fail-pinged", 1, "start"),
    *fast("fail-pinged", 3, "ping", answers=2),
    *fast("fail-last", 1, "start"),
    *fast("fail-last", 3, "commit", answers=2),
    *fast("again", 1, "start"),
    *fast("again", 2, "append"),
    *fast("again", 4, "append", answers=2),
    info("state", "G"),
)
REFUSED: tuple[Step, ...] = (
    Subscribe(name="answers", subject=f"{FAST_INBOX}.>"),
    stream("G", allow_batched=True, max_msg_size=200),
    *fast("first", 1, "start", (LAST_SEQ, "999"), answers=2),
    *fast("first", 2, "append"),
    *fast("only", 1, "commit", (LAST_SEQ, "999")),
    *fast("goes-on", 1, "start", (LAST_SEQ, "999"), gaps="ok", answers=2),
    *fast("goes-on", 2, "append", gaps="ok"),
    *fast("goes-on", 3, "append", (LAST_SUBJECT_SEQ, "999"), gaps="ok"),
    *fast("goes-on", 4, "commit", ("Nats-TTL", "1s"), gaps="ok", answers=2),
    *fast("second", 1, "start"),
    *fast("second", 2, "append", (ROLLUP, "sub"), answers=2),
    *fast("second", 3, "append"),
    *fast("level", 1, "start", (LEVEL, "99")),
    *fast("level", 2, "append"),
    *fast("level-served", 1, "commit", (LEVEL, "4")),
    *fast("repeated", 1, "start", (MSG_ID, "1")),
    *fast("repeated", 2, "append", (MSG_ID, "1")),
    *fast("repeated", 3, "append", (MSG_ID, "2"), answers=0),
    *fast("repeated", 4, "commit", (MSG_ID, "2"), answers=2),
    *fast("only-one-repeated", 1, "commit", (MSG_ID, "1")),
    *fast("only-one-may-have-gaps", 1, "commit", (MSG_ID, "1"), gaps="ok"),
    info("state", "G"),
    Call(
        name="no more batches",
        subject="$JS.API.STREAM.UPDATE.G",
        payload={"name": "G", "subjects": ["g.>"], "storage": "file", "max_msg_size": 200},
    ),
    *fast("disabled", 1, "start"),
)

INCR, PATTERN, TARGET = "Nats-Incr", "Nats-Schedule", "Nats-Schedule-Target"
FAR = "@at 2099-01-01T00:00:00Z"


def sums(name: str, *members_of: tuple[str, tuple[Header, ...]]) -> tuple[Step, ...]:
    """A batch of messages that add; each is a subject and more headers."""
    count = len(members_of)
    return tuple(
        Call(
            name=f"{name}: {place}",
            subject=subject,
            headers=((ID, name), (SEQ, str(place)), *headers, *(((COMMIT, "1"),) if place == count else ())),
        )
        for place, (subject, headers) in enumerate(members_of, 1)
    )


COUNTED: tuple[Step, ...] = (
    stream("C", allow_atomic=True, allow_msg_counter=True),
    Call(name="before", subject="c.a", headers=((INCR, "5"),)),
    *sums("twice", ("c.a", ((INCR, "1"),)), ("c.b", ((INCR, "2"),)), ("c.a", ((INCR, "-3"),))),
    *sums("one adds nothing", ("c.a", ((INCR, "100"),)), ("c.b", ())),
    *sums("no number", ("c.a", ((INCR, "100"),)), ("c.a", ((INCR, "x"),))),
    *sums("expected", ("c.a", ((INCR, "100"),)), ("c.a", ((INCR, "1"), (LAST_SEQ, "4")))),
    Call(name="nothing of what was refused is added", subject="c.a", headers=((INCR, "1"),)),
    *(stored(f"stored {seq}", "C", seq=seq) for seq in range(1, 6)),
    info("state of C", "C"),
)
SCHEDULED: tuple[Step, ...] = (
    stream("H", allow_atomic=True, allow_msg_schedules=True),
    *pair("schedule", (PATTERN, FAR), (TARGET, "h.t"), subjects=("h.a", "h.b")),
    *pair("no pattern", (PATTERN, "x"), (TARGET, "h.t"), subjects=("h.a", "h.b")),
    *pair("no target", (PATTERN, FAR), subjects=("h.a", "h.b")),
    *(stored(f"stored {seq}", "H", seq=seq) for seq in range(1, 4)),
    info("state of H", "H"),
)

SCENES = (
    Scene(name="batches/counters", steps=COUNTED),
    Scene(name="batches/schedules", steps=SCHEDULED),
    Scene(name="batches/atomic", steps=ATOMIC),
    Scene(name="batches/checks", steps=CHECKS),
    Scene(name="batches/rules", steps=RULES),
    Scene(name="batches/many", steps=MANY),
    Scene(name="batches/abandoned", steps=ABANDONED),
    Scene(name="batches/fast disabled", steps=DISABLED),
    Scene(name="batches/fast patterns", steps=PATTERNS),
    Scene(name="batches/fast flow", steps=FLOW),
    Scene(name="batches/fast gaps", steps=GAPS),
    Scene(name="batches/fast refused", steps=REFUSED),
)
