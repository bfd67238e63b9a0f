"""Everything that nodes say to each other in calls: the bytes that older nodes send and expect, and what is refused.

The bytes were written by the code that had no messages yet; they must never change.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, Self

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jetraft
import jetraft.cluster.calls.messages as package
from jetraft.cluster.backup.step_batch import RestoreStep, StepBatch, StepKind
from jetraft.cluster.calls.messages.account_places import AccountPlaces, PlacesTaken
from jetraft.cluster.calls.messages.backups import (
    BackupAnswer,
    CreatedAnswer,
    FinishQuestion,
    FreeAnswer,
    Refusal,
    RemoveQuestion,
)
from jetraft.cluster.calls.messages.clocks import ClockAnswer
from jetraft.cluster.calls.messages.comparing import (
    DetailAnswer,
    DetailQuestion,
    DigestAnswer,
    DigestQuestion,
    MendQuestion,
    MessageDigest,
    StateAnswer,
    StateQuestion,
)
from jetraft.cluster.calls.messages.forwarding import (
    ForwardedAnswer,
    ForwardedRequest,
    ForwardStatus,
    Owner,
    RelayedRequest,
)
from jetraft.cluster.calls.messages.founding import FoundersView
from jetraft.cluster.calls.messages.gets import ForwardedGet
from jetraft.cluster.calls.messages.handing_over import HandoverQuestion, HeldMessages
from jetraft.cluster.calls.messages.inquiries import (
    ConfigQuestion,
    MetaIndex,
    MetaState,
    MetaStateQuestion,
    ReadIndex,
    ReadIndexQuestion,
    SettledReport,
    StreamInfoAnswer,
    StreamRevision,
)
from jetraft.cluster.calls.messages.listing import InfosAnswer, InfosQuestion, InfoWanted
from jetraft.cluster.calls.messages.template_streams import TemplateStreamAnswer
from jetraft.cluster.calls.messages.usage import NodeTiers, NodeUsage, TierShare, UsageQuestion
from jetraft.raft import recovery
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.messages import PROTOCOLS
from jetraft.store.frames._frame import make_record
from jetraft.store.model.ids import node_id_of
from tests.harness.garbage import mangled


class Packed(Protocol):
    def pack(self) -> bytes: ...

    @classmethod
    def unpack(cls, packed: bytes) -> Self: ...


BIG: Final = 2**64 - 1
A, B = node_id_of("a"), node_id_of("b")
REQUEST = ForwardedRequest(
    account="$G",
    owner=Owner.STREAM,
    stream="S",
    repeatable=True,
    subject=b"$JS.API.STREAM.INFO.S",
    hdr=b"NATS/1.0\r\n\r\n",
    payload=b"{}",
)
RECORD = make_record(b"s.a", b"", b"x", ts_ns=5)
REQUEST_HEX: Final = (
    "97a22447a673747265616da153c3c415244a532e4150492e53545245414d2e494e464f2e53c40c4e4154532f312e300d0a0d0ac4027b7d"
)
WANTED = (
    InfoWanted(account="$G", name="S", incarnation=7, revision=BIG),
    InfoWanted(account="$G", name="größer", incarnation=1, revision=2),
)
STEPS = (
    RestoreStep(StepKind.SKIP, 1, 4, bytes.fromhex("93050500")),
    RestoreStep(StepKind.MESSAGES, 5, 2, RECORD + RECORD),
)
ROWS = (MessageDigest(seq=1, digest=b"d" * 16), MessageDigest(seq=BIG, digest=b"e" * 16))
RECORDS_HEX: Final = "1800000000000000030000000500000000000000732e6178"

SHARES = (TierShare(replicas=1, memory=7, consumers=300), TierShare(replicas=3, storage=BIG))

GOLDEN: Final[list[tuple[Packed, str]]] = [
    (REQUEST, REQUEST_HEX),
    (RelayedRequest(place=A, packed=REQUEST.pack()), "92a85162465351624451c437" + REQUEST_HEX),
    (ForwardedAnswer(status=ForwardStatus.DONE, body=b'{"type":"x"}'), "007b2274797065223a2278227d"),
    (ForwardedAnswer(status=ForwardStatus.MOVED, hint=A), "015162465351624451"),
    (ForwardedAnswer(status=ForwardStatus.MOVED), "01"),
    (ForwardedAnswer(status=ForwardStatus.LOST), "02"),
    (
        ForwardedGet(account="$G", stream="S", incarnation=7, term=BIG, hdr=b"", payload=b'{"seq":1}'),
        "96a22447a15307cfffffffffffffffffc400c4097b22736571223a317d",
    ),
    (UsageQuestion("$G"), "2447"),
    (
        NodeUsage(memory=1, storage=BIG, consumers=300, api_requests=70000, api_errors=0),
        "9501cfffffffffffffffffcd012cce0001117000",
    ),
    (SHARES[0], "94010700" + "cd012c"),
    (NodeTiers(shares=SHARES), "919294010700cd012c940300cfffffffffffffffff00"),
    (
        InfosQuestion(streams=WANTED),
        "9294a22447a15307cfffffffffffffffff94a22447a86772c3b6c39f65720102",
    ),
    (WANTED[0], "94a22447a15307cfffffffffffffffff"),
    (InfosAnswer(infos=(b'{"config":{}}', b"")), "92c40d7b22636f6e666967223a7b7d7dc400"),
    (StreamRevision(incarnation=7, revision=BIG), "9207cfffffffffffffffff"),
    (StreamInfoAnswer(info={"config": {}}), b'{"config":{}}'.hex()),
    (SettledReport(name="S", incarnation=7, revision=9), "93a1530709"),
    (MetaIndex(index=70000), "ce00011170"),
    (PlacesTaken(account="A", clients=300, leafs=1), "93a141cd012c01"),
    (AccountPlaces(accounts=(PlacesTaken(account="A", clients=300, leafs=1),)), "919193a141cd012c01"),
    (MetaStateQuestion(node_id=A), "91a85162465351624451"),
    (MetaState(index=70000, is_member=True), "92ce00011170c3"),
    (ConfigQuestion(account="$G", name="S", incarnation=7, revision=9), "94a22447a1530709"),
    (ReadIndexQuestion(incarnation=7), "9107"),
    (ReadIndex(index=70000), "91ce00011170"),
    (TemplateStreamAnswer(code=400, err_code=10027, description="no"), "93cd0190cd272ba26e6f"),
    (ClockAnswer(wall_ns=1_700_000_000_000_000_000, steady_ns=None), "92cf17979cfe362a0000c0"),
    (ClockAnswer(wall_ns=-5, steady_ns=1_700_000_000_000_000_000), "92fbcf17979cfe362a0000"),
    (
        FoundersView(founders=(B, A), vouches=(A, B)),
        "9292a8416a75574135624da8516246535162445192a85162465351624451a8416a75574135624d",
    ),
    (FoundersView(founders=None, vouches=()), "92c090"),
    (DigestQuestion(group_id="G1", incarnation=BIG, index=12), "93a24731cfffffffffffffffff0c"),
    (
        DigestAnswer(messages=b"m" * 16, consumers=b"c" * 16),
        "92c4106d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6dc41063636363636363636363636363636363",
    ),
    (DetailQuestion(group_id="G1", incarnation=BIG, first_seq=1, last_seq=500), "94a24731cfffffffffffffffff01cd01f4"),
    (ROWS[0], "9201c41064646464646464646464646464646464"),
    (
        DetailAnswer(rows=ROWS),
        "929201c4106464646464646464646464646464646492cfffffffffffffffffc41065656565656565656565656565656565",
    ),
    (
        MendQuestion(group_id="G1", incarnation=BIG, first_seq=1, last_seq=500, whom=B),
        "95a24731cfffffffffffffffff01cd01f4a8416a75574135624d",
    ),
    (StateQuestion(group_id="G1", incarnation=BIG), "92a24731cfffffffffffffffff"),
    (StateAnswer(index=12, term=3, members=b"members", state=b"state"), "940c03c4076d656d62657273c4057374617465"),
    (STEPS[0], "94030104c40493050500"),
    (
        StepBatch(incarnation=BIG, steps=STEPS),
        "92cfffffffffffffffff9294030104c4049305050094020502c430" + RECORDS_HEX * 2,
    ),
    (
        FinishQuestion(incarnation=7, config={"name": "S", "subjects": ["s"]}),
        b'[7,{"name":"S","subjects":["s"]}]'.hex(),
    ),
    (HandoverQuestion(group_id="G1", incarnation=BIG), "92a24731cfffffffffffffffff"),
    (HeldMessages(batch=b"records"), "c407" + b"records".hex()),
    (RemoveQuestion(name="S", incarnation=7), b'["S",7]'.hex()),
    (FreeAnswer(config={"name": "S"}), b'{"name":"S"}'.hex()),
    (CreatedAnswer(incarnation=7), b"7".hex()),
    (
        Refusal(code=400, err_code=10058, description="stream name already in use"),
        b'[400,10058,"stream name already in use"]'.hex(),
    ),
    (BackupAnswer(body=b'{"name":"S"}'), "00" + b'{"name":"S"}'.hex()),
    (
        BackupAnswer(refusal=Refusal(code=400, err_code=10058, description="stream name already in use")),
        "01" + b'[400,10058,"stream name already in use"]'.hex(),
    ),
]

# Modules that decode msgpack otherwise, and where what they decode comes from.
ELSEWHERE: Final = {
    "raft/mesh/messages.py": "the calls of this test",
    "raft/mesh/gossip.py": "what nodes say of themselves (tests/raft/mesh/test_gossip.py)",
    "raft/mesh/store_ages.py": "the ledger",
    "raft/engine/membership.py": "entries and checkpoints",
    "cluster/meta/commands.py": "entries",
    "cluster/meta/saved_rows.py": "the ledger",
    "cluster/meta/table.py": "checkpoints",
    "cluster/state/commands.py": "entries",
    "cluster/state/consumer_transitions.py": "entries",
    "cluster/state/snapshot.py": "checkpoints",
    "store/ledger/kept_ages.py": "the ledger",
    "store/ledger/ledger_records.py": "the ledger",
    "store/stream/dedup.py": "checkpoints",
    "store/stream/stream_store.py": "checkpoints",
}

# Each registers its messages: what other tests have imported in this process must not decide which are tried.
for each in (package, recovery):
    for module in pkgutil.iter_modules(each.__path__):
        importlib.import_module(f"{each.__name__}.{module.name}")

KINDS: Final = sorted({type(message) for message, _ in GOLDEN}, key=lambda kind: kind.__name__)
ALL: Final = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize(("message", "wire"), GOLDEN, ids=lambda value: type(value).__name__)
def test_the_bytes_are_those_of_every_version(message: Packed, wire: str) -> None:
    assert message.pack().hex() == wire
    assert type(message).unpack(bytes.fromhex(wire)) == message


def test_every_protocol_is_here() -> None:
    ours = {name for name, kind in PROTOCOLS.items() if not kind.__module__.startswith("jetraft.raft.recovery.")}
    assert {type(message).__name__ for message, _ in GOLDEN} >= ours  # the others: tests/raft/recovery/test_messages.py


def test_nothing_else_decodes_what_nodes_send() -> None:
    root = Path(jetraft.__file__).parent
    found = set()
    for folder in ("api", "cluster", "raft", "store"):
        for path in sorted((root / folder).rglob("*.py")):
            names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
            if names & {"unpackb", "Unpacker", "unpack_from_stream"}:
                found.add(str(path.relative_to(root)))
    assert found == ELSEWHERE.keys()


WORDS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), BIG) | st.text(max_size=4) | st.binary(max_size=4) | st.floats(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=12,
)


def judge(kind: type[Packed], packed: bytes) -> None:
    """What is taken is taken whole: it can be written, and is the same then."""
    with suppress(RemoteProtocolError):
        taken = kind.unpack(packed)
        assert kind.unpack(taken.pack()) == taken


@ALL
@given(st.binary(max_size=40) | WORDS.map(msgpack.packb))
@settings(deadline=None)
def test_garbage_raises_one_exception_only(kind: type[Packed], packed: bytes) -> None:
    judge(kind, packed)


@ALL
@given(data=st.data())
@settings(deadline=None)
def test_a_message_that_was_changed_raises_one_exception_only(kind: type[Packed], data: st.DataObject) -> None:
    wires = [bytes.fromhex(wire) for message, wire in GOLDEN if type(message) is kind]
    judge(kind, data.draw(mangled(wires)))


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_arrays_that_announce_much_cost_little(name: str) -> None:
    """A list has a place for each item that it announces, and 1024 may stand in each other."""
    kind = PROTOCOLS[name]
    count = kind.layout.items_max
    tracemalloc.start()
    try:
        for head in (b"\xdc" + count.to_bytes(2, "big"), b"\xdd\x00\x0f\xff\xff"):
            with pytest.raises(RemoteProtocolError):
                kind.unpack((head * 1100)[: kind.layout.bytes_max])
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "step",
    [
        RestoreStep(StepKind.MESSAGES, 1, 1, RECORD[:-1]),
        RestoreStep(StepKind.MESSAGES, 1, 2, RECORD),
        RestoreStep(StepKind.MESSAGES, 1, 1, RECORD + RECORD),
        RestoreStep(StepKind.MESSAGES, 1, 2**40, RECORD),
        RestoreStep(StepKind.SKIP, 1, 1, b"\x90"),
        RestoreStep(StepKind.REMOVE, 0, 0, b"\xc1"),
        RestoreStep(StepKind.CONSUMER, 0, 0, b"\x91\x91\x63"),
    ],
)
def test_a_step_that_no_replica_could_apply_is_refused(step: RestoreStep) -> None:
    packed = StepBatch(incarnation=1, steps=(STEPS[1], step)).pack()
    with pytest.raises(RemoteProtocolError, match="a step of a restore whose body is none"):
        StepBatch.unpack(packed)
