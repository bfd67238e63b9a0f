"""Mirrors and sources: what is refused, what is stored, what infos say; a mirror that becomes a stream of its own."""

import json

from tests.conformance.steps import Call, Expect, Publish, Scene, Step, Subscribe, Until, messages, stream

API = "$JS.API.STREAM"
MEMORY = {"storage": "memory", "allow_direct": True}


def create(name: str, title: str, /, **config: object) -> Call:
    return Call(name=title, subject=f"{API}.CREATE.{name}", payload={"name": name, **MEMORY, **config})


def make(name: str, title: str, /, **config: object) -> Publish:
    """A create whose answer is not looked at: the reference's has the filters of a mirror only if it was quick."""
    body = json.dumps({"name": name, **MEMORY, **config}).encode()
    return Publish(name=title, subject=f"{API}.CREATE.{name}", payload=body)


def update(name: str, title: str, /, **config: object) -> Call:
    return Call(name=title, subject=f"{API}.UPDATE.{name}", payload={"name": name, **MEMORY, **config})


def caught_up(name: str, last_seq: int, title: str) -> Until:
    return Until(name=title, subject=f"{API}.INFO.{name}", field="state.last_seq", value=last_seq)


def get(name: str, seq: int, title: str) -> Call:
    return Call(name=title, subject=f"$JS.API.DIRECT.GET.{name}", payload={"seq": seq})


ORIGIN: tuple[Step, ...] = (
    create("O", "origin", subjects=["a.>"], allow_rollup_hdrs=True),
    *messages("a.0", "1", "2"),
    *messages("a.1", "3", "4"),
    Call(name="purge", subject=f"{API}.PURGE.O", payload={"seq": 2}),
    Call(name="delete a message", subject=f"{API}.MSG.DELETE.O", payload={"seq": 3}),
)
MIRROR: tuple[Step, ...] = (
    *ORIGIN,
    create("M", "mirror", mirror={"name": "O"}),
    caught_up("M", 4, "mirror has come up"),
    make("MF", "with a filter", mirror={"name": "O", "filter_subject": "a.1"}),
    caught_up("MF", 4, "filtered"),
    create("MS", "from a sequence", mirror={"name": "O", "opt_start_seq": 4}),
    caught_up("MS", 4, "from there"),
    make("MT", "transformed", mirror={"name": "O", "subject_transforms": [{"src": "a.*", "dest": "b.$1"}]}),
    caught_up("MT", 4, "with other subjects"),
    create("MR", "with rollups", mirror={"name": "O"}, allow_rollup_hdrs=True),
    caught_up("MR", 4, "before the rollup"),
    Publish(name="rollup", subject="a.1", payload=b"5", headers=(("Nats-Rollup", "sub"), ("Nats-Msg-Id", "i"))),
    caught_up("M", 5, "rollup in a mirror that allows none"),
    caught_up("MR", 5, "rollup in one that does"),
    get("M", 2, "same sequence"),
    get("M", 3, "deleted in the origin"),
    get("M", 5, "headers"),
    get("MT", 4, "subject"),
    Call(name="consumers of the origin", subject="$JS.API.CONSUMER.NAMES.O"),
    Call(name="delete in a mirror", subject=f"{API}.MSG.DELETE.M", payload={"seq": 2}),
    Call(name="info of the origin", subject=f"{API}.INFO.O"),
    update("M", "another origin", mirror={"name": "P"}),
    update("M", "a limit", mirror={"name": "O"}, max_msgs=2),
    update("M", "promoted", subjects=["m.>"]),
    *messages("m.1", "own"),
    Publish(name="more for the origin", subject="a.9"),
    caught_up("MF", 5, "the others go on"),
    Call(name="info of what was a mirror", subject=f"{API}.INFO.M"),
    update("O", "a stream does not become one", mirror={"name": "P"}),
)
SOURCES: tuple[Step, ...] = (
    *ORIGIN,
    create("S", "source", sources=[{"name": "O"}]),
    caught_up("S", 2, "source has come up"),
    get("S", 1, "first copy"),
    get("S", 2, "second copy"),
    create("SF", "with a filter", sources=[{"name": "O", "filter_subject": "a.1"}], subjects=["own"]),
    caught_up("SF", 1, "filtered"),
    *messages("own", "beside"),
    get("SF", 1, "filtered copy"),
    create("ST", "transformed", sources=[{"name": "O", "subject_transforms": [{"src": "a.*", "dest": "b.$1"}]}]),
    caught_up("ST", 2, "with other subjects"),
    get("ST", 2, "transformed copy"),
    create("SS", "source of a source", sources=[{"name": "S"}]),
    caught_up("SS", 2, "over two"),
    get("SS", 2, "copy of a copy"),
    update("ST", "no source", subjects=["st"]),
    Call(name="publish a source header", subject="st", headers=(("Nats-Stream-Source", "O 1 > > a x"),)),
)
REFUSED: tuple[Step, ...] = (
    create("O", "narrow origin", subjects=["a.>"], max_msg_size=100),
    create("M1", "mirror too narrow", mirror={"name": "O"}, max_msg_size=50),
    create("M2", "source too narrow", sources=[{"name": "O"}], max_msg_size=50),
    create("L", "own mirror", mirror={"name": "L"}),
    create("L", "own source", sources=[{"name": "L"}]),
    create("A", "A of B", sources=[{"name": "B"}]),
    create("B", "B of C", sources=[{"name": "C"}]),
    create("C", "C of A", sources=[{"name": "A", "filter_subject": "x"}]),
    create("C", "C mirrors A", mirror={"name": "A"}),
    create("C", "C", subjects=["c"]),
    update("C", "C of A by update", subjects=["c"], sources=[{"name": "A"}]),
    create("D1", "bad destination", mirror={"name": "O", "subject_transforms": [{"src": "a.*", "dest": "b.$2"}]}),
    create(
        "D2",
        "bad destination of a source",
        sources=[{"name": "O", "subject_transforms": [{"src": "a.*", "dest": "b..c"}]}],
    ),
    create("N", "mirror of none", mirror={"name": "NONE"}),
    Until(name="no origin", subject=f"{API}.INFO.N", field="mirror.error.err_code", value=10059),
)
REWRITING: tuple[Step, ...] = (
    stream("O", ["o.>"]),
    Subscribe(name="republished", subject="again.>"),
    make("T", "with a transform", mirror={"name": "O"}, subject_transform={"src": "o.*", "dest": "n.$1"}),
    make(
        "B",
        "with both transforms",
        mirror={"name": "O", "subject_transforms": [{"src": "o.*", "dest": "x.$1"}]},
        subject_transform={"src": "x.a", "dest": "y.a"},
    ),
    make("D", "with direct gets of its origin", mirror={"name": "O"}, mirror_direct=True),
    make("R", "that republishes", mirror={"name": "O"}, republish={"src": "o.>", "dest": "again.>"}),
    Call(name="first", subject="o.a", payload=b"1", headers=(("H", "v"),)),
    *messages("o.b", "2"),
    *messages("o.a", "3"),
    Expect(name="copies", of="republished", count=3),
    *(
        Until(name=f"{mirror} has all", subject=f"{API}.INFO.{mirror}", field="state.messages", value=3)
        for mirror in ("T", "B", "R", "D")
    ),
    *(
        Call(name=f"{mirror}: {seq}", subject=f"{API}.MSG.GET.{mirror}", payload={"seq": seq})
        for mirror in ("T", "B", "R")
        for seq in (1, 2)
    ),
)
WAYS: tuple[Step, ...] = (
    create("O", "origin of both", subjects=["o.>"]),
    create("M", "mirror of it", mirror={"name": "O"}),
    create("S1", "the origin, then its mirror", sources=[{"name": "O"}, {"name": "M"}]),
    create("S2", "the mirror, then its origin", sources=[{"name": "M"}, {"name": "O"}]),
    create("S3", "a copy", sources=[{"name": "O"}]),
    create("S4", "the origin, then a copy", sources=[{"name": "O"}, {"name": "S3"}]),
    create("A", "of one that is not there", subjects=["a.>"], sources=[{"name": "B", "filter_subject": "b.>"}]),
    create("B", "each has what the other has not", subjects=["b.>"], sources=[{"name": "A", "filter_subject": "a.>"}]),
    create("C", "of another that is not there", subjects=["c.>"], sources=[{"name": "D", "filter_subject": "c.x"}]),
    create("D", "it would come back", subjects=["d.>"], sources=[{"name": "C", "filter_subject": "c.>"}]),
    update("S3", "of itself", sources=[{"name": "S3"}]),
    Call(name="names", subject=f"{API}.NAMES"),
)
ROLLUPS: tuple[Step, ...] = (
    stream(
        "R", discard="new", max_msgs_per_subject=1, discard_new_per_subject=True, allow_rollup_hdrs=True, max_msgs=3
    ),
    *messages("r.a", "1", "2"),
    *(
        Call(name=f"{kind} of {subject}", subject=subject, payload=b"x", headers=(("Nats-Rollup", kind),))
        for subject in ("r.a", "r.b", "r.c", "r.d")
        for kind in ("sub", "all", "none")
    ),
    *messages("r.e", "5"),
    *messages("r.f", "6"),
    *messages("r.g", "7"),
    Call(name="sub of a full stream", subject="r.e", payload=b"x", headers=(("Nats-Rollup", "sub"),)),
    Call(name="all of a full stream", subject="r.h", payload=b"x", headers=(("Nats-Rollup", "all"),)),
    Call(name="info", subject=f"{API}.INFO.R"),
)

SCENES = (
    Scene(name="mirrors", steps=MIRROR),
    Scene(name="sources", steps=SOURCES),
    Scene(name="mirrors that rewrite", steps=REWRITING),
    Scene(name="two ways from an origin", steps=WAYS),
    Scene(name="rollups at the limit of a subject", steps=ROLLUPS),
    Scene(name="mirrors and sources that are refused", steps=REFUSED),
)
