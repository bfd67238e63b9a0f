"""The newest block is zeroed, and the ledger has noted less of it than was acknowledged: others say how far it went."""

import attrs
import msgpack
import pytest

from jetraft.raft.engine.membership import Configuration
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.rpc import RemoteCallError
from jetraft.raft.recovery.repair import RepairPendingError
from jetraft.raft.recovery.repair_rules import electable
from jetraft.raft.recovery.repair_wire import EndAnswer, EndRequest, end_answer_of, unpack_end_answer, unpack_request
from jetraft.store.blocks.cache import BlockCache
from jetraft.store.log.file_log import FileLog
from jetraft.store.log.opening import open_log
from jetraft.store.model.ids import NodeId
from jetraft.store.port import Entry, HardState
from tests.doubles.lossy_disk import LossyDisk
from tests.doubles.repaired_group import GroupWithLog
from tests.raft.recovery.test_repair import BLOCK, GROUP, GROUP_ID, A, B, C, Node, entry, frames
from tests.store.ledgers import ledger_of

D, E = (NodeId(letter * 8) for letter in "DE")
PAGE_BYTES = 4096
NOTED = 3
REQUEST = EndRequest(group_id=GROUP_ID, incarnation=7, index_max=100, term_max=5)


def history(last_index: int, term: int = 1) -> list[Entry]:
    return [entry(index, term) for index in range(1, last_index + 1)]


def write_unnoted(node: Node, entries: list[Entry], *, term: int = 1) -> None:
    """A log of which the ledger knows the first `NOTED` entries only."""
    log = open_log(ledger_of(node.disk, GROUP), GROUP, node.identity, BlockCache())
    log.set_hard_state(HardState(term=term, vote=None))
    log.append(entries[:NOTED])
    log.submit()
    node.disk.finish()
    assert log.note_floor()
    node.disk.finish()
    log.append(entries[NOTED:])
    log.submit()
    node.disk.finish()
    log.close()
    node.disk.zero(BLOCK, PAGE_BYTES)


def run(node: Node, entries: list[Entry], *, term: int = 1, commit_index: int = 0, voters: str = "ABC") -> None:
    """A sound member whose group runs."""
    node.write(entries, term=term)
    node.lead(commit_index)
    members = tuple(NodeId(letter * 8) for letter in voters)
    node.manager.groups[GROUP_ID].configuration = Configuration(voters=members)


def three() -> tuple[Node, Node, Node]:
    wire: dict[NodeId, Node] = {}
    return Node(wire, A), Node(wire, B), Node(wire, C)


async def opened(node: Node, attempts: int = 4) -> FileLog:
    """A promise is durable too late for the answer that it goes with: the next attempt counts it."""
    for _ in range(attempts - 1):
        try:
            return await node.open()
        except RepairPendingError:
            continue
    return await node.open()


async def test_entries_that_only_the_others_know_of_come_back() -> None:
    """A and B had 6 entries; nobody has told B yet that they are committed. C was down."""
    a, b, c = three()
    write_unnoted(a, history(6))
    run(b, history(6))
    run(c, history(2))

    log = await a.open()

    assert frames(log) == history(6)
    assert (log.damaged_entries, log.damaged_blocks, log.lost) == ((), (), ())


async def test_nothing_is_mended_before_a_majority_besides_this_member_has_answered() -> None:
    a, b, c = three()
    write_unnoted(a, history(6))
    run(b, history(6))
    run(c, history(NOTED), commit_index=NOTED)
    b.up = False
    before = a.disk.read_whole(BLOCK)
    for _ in range(3):
        with pytest.raises(RepairPendingError, match="how far"):
            await a.open()
    assert a.disk.read_whole(BLOCK) == before, "the evidence of the damage is gone"

    b.up = True

    assert frames(await a.open()) == history(6)


async def test_a_restart_asks_again() -> None:
    a, b, c = three()
    write_unnoted(a, history(6))
    run(b, history(6))
    run(c, history(NOTED), commit_index=NOTED)
    b.up = False
    with pytest.raises(RepairPendingError):
        await a.open()
    a.repairs.forget(GROUP_ID)  # another process opens what is on the disk

    with pytest.raises(RepairPendingError, match="how far"):
        await a.open()


async def test_two_that_have_lost_their_ends_go_on_from_what_the_third_has() -> None:
    """Nothing better can ever be known."""
    a, b, c = three()
    write_unnoted(a, history(6))
    write_unnoted(b, history(6))
    run(c, history(4))
    with pytest.raises(RepairPendingError):
        await b.open()

    for node in (a, b):
        log = await node.open()
        assert frames(log) == history(4)
        assert log.lost == ()
        node.manager.groups[GROUP_ID] = GroupWithLog(log, 0)


async def test_what_two_believe_of_each_other_is_no_end() -> None:
    """C has told A of entries that a power cut takes from it before A could fetch them."""
    a, b, c = three()
    for node in (a, b):
        write_unnoted(node, history(4))
    with pytest.raises(RepairPendingError):
        await a.open()
    with pytest.raises(RepairPendingError):
        await b.open()
    run(c, history(6))
    log = a.repairs._pending.waiting[GROUP_ID, 7]
    log.close()
    a.repairs._pending.waiting[GROUP_ID, 7] = log.reopen(end_index=6)
    c.disk = LossyDisk()
    run(c, history(4))

    log = await opened(b)
    b.manager.groups[GROUP_ID] = GroupWithLog(log, 0)

    assert frames(log) == history(4)
    assert frames(await opened(a)) == history(4)


async def test_who_asks_to_be_admitted_has_nothing_left_to_wait_for() -> None:
    a, b, c = three()
    write_unnoted(a, history(6))
    b.repairs._serving._has_forgotten = lambda key: key == (GROUP_ID, 7)
    run(c, history(5))

    assert (await a.open()).last_index == 5


async def test_what_this_member_never_had_is_taken_like_a_late_append() -> None:
    a, b, c = three()
    write_unnoted(a, history(4))
    run(b, history(9))
    run(c, history(NOTED))

    log = await a.open()

    assert frames(log) == history(9)
    assert a.repairs.statistics().entries_lost == 0


async def test_the_end_is_not_in_a_later_term_than_the_promised_one() -> None:
    a, b, c = three()
    write_unnoted(a, history(5))
    later = [*history(4), entry(5, 2), entry(6, 2)]
    for node in (b, c):
        run(node, later, term=2, commit_index=6)

    log = await a.open()

    assert frames(log) == history(4), "what follows is replicated as to every member"


async def test_the_end_fits_into_the_block() -> None:
    """The others have gone on in the same term for a long time."""
    a, b, c = three()
    write_unnoted(a, history(5))
    for node in (b, c):
        run(node, history(1000), commit_index=1000)
    reserved_bytes = len(a.disk.read_whole(BLOCK))

    log = await a.open()

    assert (log.last_index - NOTED - 1) * len(entry(1).frame) <= reserved_bytes
    assert frames(log) == history(log.last_index)


async def test_of_two_voters_the_one_that_is_whole_is_believed() -> None:
    """The damaged one has promised a term that nobody led; the other one cannot be elected without it."""
    wire: dict[NodeId, Node] = {}
    a, b = Node(wire, A), Node(wire, B)
    write_unnoted(a, history(6), term=3)
    run(b, history(6), voters="AB")

    assert frames(await a.open()) == history(6)


async def test_where_one_is_away_the_others_promise_to_hear_no_leader_of_before() -> None:
    """E leads term 1, and A has acknowledged 6 to it: if B got that now, E would count both with itself."""
    wire: dict[NodeId, Node] = {}
    a, b, c, d, e = (Node(wire, node) for node in (A, B, C, D, E))
    write_unnoted(a, history(6))
    for node in (b, c, d):
        run(node, history(5), voters="ABCDE")
    e.up = False

    log = await opened(a)

    assert log.last_index == 5
    assert [node.manager.groups[GROUP_ID].log.hard_state.term for node in (b, c, d)] == [2, 2, 2]


async def test_too_few_are_asked_for_no_promise() -> None:
    wire: dict[NodeId, Node] = {}
    a, b, c, d, e = (Node(wire, node) for node in (A, B, C, D, E))
    write_unnoted(a, history(6))
    for node in (b, c):
        run(node, history(5), voters="ABCDE")
    d.up = e.up = False

    for _ in range(3):
        with pytest.raises(RepairPendingError):
            await a.open()

    assert [node.manager.groups[GROUP_ID].log.hard_state.term for node in (b, c)] == [1, 1]


async def test_no_promise_is_needed_where_a_later_term_has_begun_or_all_have_answered() -> None:
    wire: dict[NodeId, Node] = {}
    a, b, c, d, e = (Node(wire, node) for node in (A, B, C, D, E))
    write_unnoted(a, history(6))
    for node in (b, c, d):
        run(node, history(6), term=2, commit_index=6, voters="ABCDE")
    e.up = False
    assert (await a.open()).last_index == 6
    assert [node.manager.groups[GROUP_ID].log.hard_state.term for node in (b, c, d)] == [2, 2, 2]


async def test_a_lone_member_has_nobody_to_ask() -> None:
    a = Node({}, A)
    write_unnoted(a, history(6))

    log = await a.open()

    assert log.lost == ((1, NOTED),)


def answer(term: int, last_term: int, last_index: int, voters: str = "ABC") -> EndAnswer:
    members = tuple(NodeId(letter * 8) for letter in voters)
    return EndAnswer(last_index=last_index, last_term=last_term, term=term, voters=members)


@pytest.mark.parametrize(
    ("answers", "best"),
    [
        pytest.param({B: answer(2, 1, 5), C: answer(2, 1, 7)}, C, id="the longest"),
        pytest.param({B: answer(2, 2, 5), C: answer(2, 1, 7)}, B, id="the latest term"),
        pytest.param({B: answer(2, 1, 5)}, None, id="no majority"),
        pytest.param({B: answer(2, 1, 5), C: answer(1, 1, 7)}, None, id="still hears the leader"),
        pytest.param({B: answer(2, 1, 5), C: answer(2, 1, 7, "")}, None, id="no voter"),
        pytest.param({B: answer(2, 1, 5, "AB")}, None, id="a pair"),
        pytest.param({B: answer(2, 1, 5, "ABCD"), C: answer(2, 1, 5, "ABCD")}, None, id="half of four"),
        pytest.param({B: answer(2, 1, 9, "BC"), C: answer(2, 1, 5, "ABC")}, B, id="the newest configuration counts"),
        pytest.param({B: answer(2, 1, 5, "BC"), C: answer(2, 1, 9, "ACDE")}, None, id="as long as it is the best log"),
    ],
)
def test_who_can_be_elected_without_the_one_that_asks(answers: dict[NodeId, EndAnswer], best: NodeId | None) -> None:
    assert electable(answers, above_term=1) == best


def test_an_end_of_unknown_term_is_not_told() -> None:
    """Nobody could give it up: the term of what would stand for it is not known."""
    a = Node({}, A)
    a.write(history(6), term=1)
    log = open_log(ledger_of(a.disk, GROUP), GROUP, a.identity, BlockCache(), a.repairs._options)
    log._blocks.terms.doubt(5, 6)

    found = end_answer_of(log, REQUEST, term=1, voters=())

    assert (found.last_term, found.last_index) == (1, 4)


@pytest.mark.parametrize(("index_max", "term_max", "end"), [(100, 9, (3, 6)), (100, 2, (1, 4)), (2, 9, (1, 2))])
def test_an_answer_goes_as_far_as_the_question(index_max: int, term_max: int, end: tuple[int, int]) -> None:
    a = Node({}, A)
    a.write([*history(4), entry(5, 3), entry(6, 3)], term=3)
    log = open_log(ledger_of(a.disk, GROUP), GROUP, a.identity, BlockCache())
    request = attrs.evolve(REQUEST, index_max=index_max, term_max=term_max)

    found = end_answer_of(log, request, term=3, voters=(A, B))

    assert found.end == end
    assert unpack_end_answer(found.pack(), request) == found


def test_requests_are_what_was_packed() -> None:
    assert unpack_request(REQUEST.pack()) == REQUEST
    for bad in ((GROUP_ID, 7, "end", 1, 2), (GROUP_ID, 7, "end", -1, 2, 3), (GROUP_ID, 7, "else", 1, 2, 3), (1,), ()):
        with pytest.raises(RemoteCallError):
            unpack_request(msgpack.packb(bad))


@pytest.mark.parametrize("bad", [(), (1, 2, 3), (1, 2, 3, None), (1, 2, 3, [4]), (-1, 2, 3, []), (101, 2, 3, [])])
def test_a_bad_answer_is_none(bad: tuple[object, ...]) -> None:
    with pytest.raises(RemoteProtocolError):
        unpack_end_answer(msgpack.packb(bad), REQUEST)
