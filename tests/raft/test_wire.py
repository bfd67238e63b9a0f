import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.engine.messages import (
    Append,
    AppendAccepted,
    AppendRejected,
    CommitNotice,
    LeaderSeen,
    Message,
    PreVoteGrant,
    PreVoteRequest,
    ReadProbe,
    ReadProbeSeen,
    Resigned,
    SnapshotOffer,
    TermNotice,
    TransferNow,
    VoteGrant,
    VoteRequest,
)
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.wire import TERM_MAX, decode, encode
from jetraft.store.frames._frame import resummed
from jetraft.store.frames.format import FRAME_VERSION, Kind
from jetraft.store.port import Entry
from tests.raft.rig import INCARNATION, A, B, C, entries, entry

MEMBERS = Configuration(voters=[A, B], learners=[C]).encode()
MESSAGES: list[Message] = [
    PreVoteRequest(term=3, last_index=9, last_term=2),
    PreVoteGrant(term=3),
    VoteRequest(term=3, last_index=9, last_term=2, transfer=True),
    VoteRequest(term=3, last_index=2**63, last_term=2, transfer=False),
    VoteGrant(term=3),
    TermNotice(term=TERM_MAX),
    Append(term=5, prev_index=0, prev_term=0, commit_index=0, entries=[]),
    Append(term=5, prev_index=3, prev_term=1, commit_index=2, entries=entries(1, 4, 5, first=4)),
    AppendAccepted(term=3, prev_index=1, verified_index=2),
    AppendRejected(term=3, prev_index=1, hint_index=2),
    LeaderSeen(term=1),
    CommitNotice(term=1, commit_index=7),
    Resigned(term=1),
    TransferNow(term=1),
    ReadProbe(term=1, round=2),
    ReadProbeSeen(term=1, round=2),
    SnapshotOffer(term=1, index=9, index_term=1, members=MEMBERS),
]


def payload_of(*messages: Message, name: bytes = b"S-R3F-abcdefgh") -> bytes:
    return b"".join(part for message in messages for part in encode(name, INCARNATION, message))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_survive_the_wire(message: Message) -> None:
    [addressed] = decode(memoryview(payload_of(message)))
    assert addressed.message == message
    assert (addressed.group_id, addressed.incarnation) == ("S-R3F-abcdefgh", INCARNATION)


def test_a_payload_holds_messages_of_many_groups() -> None:
    payload = payload_of(*MESSAGES) + payload_of(*MESSAGES, name=b"meta")
    assert [addressed.message for addressed in decode(memoryview(payload))] == MESSAGES * 2


@pytest.mark.parametrize(
    "damage",
    [
        Append(term=5, prev_index=3, prev_term=1, commit_index=0, entries=entries(1, first=5)),
        Append(term=5, prev_index=3, prev_term=1, commit_index=0, entries=entries(6, first=4)),
        Append(term=5, prev_index=3, prev_term=3, commit_index=0, entries=entries(2, first=4)),
        Append(term=5, prev_index=3, prev_term=1, commit_index=0, entries=[*entries(1, first=4), *entries(1, first=4)]),
    ],
    ids=["hole", "term beyond the message's", "term goes back", "index repeated"],
)
def test_entries_that_do_not_continue_the_log_are_refused(damage: Append) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(memoryview(payload_of(damage)))


@pytest.mark.parametrize(
    "message",
    [
        Append(term=1, prev_index=0, prev_term=0, commit_index=0, entries=[entry(1, 1, b"\x80", Kind.RAFT_CONFIG)]),
        SnapshotOffer(term=1, index=9, index_term=1, members=b"nobody"),
        TermNotice(term=TERM_MAX + 1),
        TermNotice(term=1 << 63),
    ],
    ids=["configuration", "members of a snapshot", "term without a next one", "term that no ledger holds"],
)
def test_what_a_group_would_stumble_over_is_refused_before_it_gets_it(message: Message) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(memoryview(payload_of(message)))


def test_entries_of_another_incarnation_are_refused() -> None:
    """Rule 30."""
    append = Append(term=1, prev_index=0, prev_term=0, commit_index=0, entries=[entry(1, 1)])
    with pytest.raises(RemoteProtocolError):
        decode(memoryview(b"".join(encode(b"meta", INCARNATION + 1, append))))


def test_any_flipped_bit_of_an_entry_is_refused() -> None:
    [written] = entries(1)
    payload = payload_of(Append(term=3, prev_index=0, prev_term=0, commit_index=0, entries=[written]))
    begin = payload.index(written.frame)
    for bit in range(8 * len(written.frame)):
        damaged = bytearray(payload)
        damaged[begin + bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError):
            decode(memoryview(damaged))


@given(st.sampled_from(MESSAGES), st.data())
def test_a_damaged_append_never_changes_its_entries(message: Message, data: st.DataObject) -> None:
    """One flipped bit anywhere: refused, or the entries are what was sent."""
    payload = bytearray(payload_of(message))
    position = data.draw(st.integers(0, len(payload) - 1))
    payload[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        decoded = decode(memoryview(payload))
    except RemoteProtocolError:
        return
    sent = message.entries if isinstance(message, Append) else []
    for addressed in decoded:
        if isinstance(addressed.message, Append):
            assert list(addressed.message.entries) == list(sent)


@given(st.binary(max_size=200))
def test_garbage_raises_one_exception_only(data: bytes) -> None:
    try:
        decode(memoryview(data))
    except RemoteProtocolError:
        return


@given(st.integers(0, 400))
def test_a_payload_that_ends_early_is_refused(cut: int) -> None:
    whole = payload_of(MESSAGES[7])
    if 0 < cut < len(whole):
        with pytest.raises(RemoteProtocolError):
            decode(memoryview(whole[:cut]))


def test_a_frame_of_a_newer_version_is_refused_and_not_misread() -> None:
    frame = bytearray(entry(4, 5).frame)
    frame[8] = FRAME_VERSION + 1
    newer = Entry(index=4, term=5, kind=Kind.NOOP, frame=resummed(frame))
    with pytest.raises(RemoteProtocolError, match=f"version {FRAME_VERSION + 1}, newer than {FRAME_VERSION}"):
        decode(memoryview(payload_of(Append(term=5, prev_index=3, prev_term=1, commit_index=2, entries=[newer]))))
