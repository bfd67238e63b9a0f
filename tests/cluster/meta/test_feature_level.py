"""A feature that needs a level is used once every server knows the level, and not before."""

from typing import cast

import attrs
import pytest

from jetraft.cluster.meta.commands import TEXT_BYTES_MAX, BadCommandError
from jetraft.cluster.meta.frontend import Bounds, MetaFrontend
from jetraft.cluster.meta.meta_group import MetaGroup, MetaGroupRef
from jetraft.cluster.meta.profile import KEY, NodeProfile, unpack_profile
from jetraft.cluster.state.assignment import Former
from jetraft.store.model.clock import ManualClock
from jetraft.store.model.config import StreamConfig
from jetraft.store.model.errors import ApiError
from jetraft.store.model.extensions import CHAIN, DELAYED, MAX_SUBJECTS
from jetraft.store.model.feature_level import BASE, FIRST, LEVEL, MOVES, STREAM_KEYS, TEMPLATES, needed_by
from jetraft.store.model.ids import NodeId
from jetraft.store.model.schemas.rules import SCHEMA
from tests.cluster.meta.makers import ACCOUNT, N1, N2, N3, assignment
from tests.cluster.meta.test_frontend import InstantGroup, Requests

KEYS = {DELAYED: LEVEL}  # as if the key were new
PLAIN = StreamConfig(name="P", subjects=("p",))
NEW = StreamConfig(name="S", subjects=("s",), metadata={DELAYED: "true"})


class Peer:
    """Another server, which says which level it knows; nothing before there were levels."""

    def __init__(self, name: str, level: int | None, *, up: bool = True) -> None:
        self.name = name
        self.up = up
        told = NodeProfile(level=level or FIRST).pack()
        if level is None:
            del told["level"]
        self.metadata = {KEY: told}


def requests_beside(peers: dict[NodeId, Peer], own_level: int = LEVEL) -> Requests:
    requests = Requests(peers={node: peer.name for node, peer in peers.items()})
    requests.view._peers = lambda: peers
    requests.view.own_profile = NodeProfile(level=own_level)
    requests.meta_group = MetaGroupRef(cast("MetaGroup", requests.group))
    requests.frontend = MetaFrontend(
        machine=requests.machine,
        cluster=requests.view,
        meta_group=requests.meta_group,
        clock=ManualClock(),
        rng=requests.frontend._rng,
        bounds=Bounds(level_keys=KEYS),
    )
    return requests


def proposed(requests: Requests) -> int:
    assert isinstance(requests.group, InstantGroup)
    return requests.group.proposed


async def test_the_first_use_raises_the_level_and_the_next_finds_it() -> None:
    requests = requests_beside({N2: Peer("two", LEVEL), N3: Peer("three", LEVEL + 1)})
    assert await requests.create(PLAIN)
    assert (proposed(requests), requests.machine.table.feature_level) == (1, FIRST)
    assert await requests.create(NEW)
    assert (proposed(requests), requests.machine.table.feature_level) == (3, LEVEL)
    await requests.create(StreamConfig(name="T", subjects=("t",), metadata={DELAYED: "true"}))
    assert proposed(requests) == 4


@pytest.mark.parametrize(
    "behind",
    [Peer("three", None), Peer("three", LEVEL - 1), Peer("three", LEVEL, up=False)],
    ids=["older", "kept back", "away"],
)
async def test_while_a_server_does_not_know_it_the_feature_is_refused_and_nothing_is_proposed(behind: Peer) -> None:
    requests = requests_beside({N2: Peer("two", LEVEL), N3: behind})
    await requests.create(PLAIN)
    with pytest.raises(ApiError) as caught:
        await requests.create(NEW)
    assert caught.value.err_code == 10052
    expected = f"{DELAYED} needs feature level {LEVEL}: upgrade and start these servers first: three"
    assert caught.value.description == expected
    config = StreamConfig(name="P", subjects=("p",), metadata={DELAYED: "true"})
    with pytest.raises(ApiError, match="needs feature level"):
        await requests.frontend.update(ACCOUNT, config, pedantic=False)
    assert (proposed(requests), requests.machine.table.feature_level) == (1, FIRST)


async def test_what_every_version_that_takes_part_knows_is_used_once_all_servers_say_that_they_know_it() -> None:
    peers = {N2: Peer("two", BASE), N3: Peer("three", BASE, up=False)}
    requests = requests_beside(peers)
    await requests.frontend.raise_to_base()
    assert proposed(requests) == 0
    peers[N3].up = True
    for _ in range(2):
        await requests.frontend.raise_to_base()
        assert (proposed(requests), requests.machine.table.feature_level) == (1, BASE)


@pytest.mark.parametrize("behind", [Peer("three", None), Peer("three", FIRST)], ids=["older", "kept back"])
async def test_a_server_that_does_not_know_it_is_not_shut_out(behind: Peer) -> None:
    requests = requests_beside({N2: Peer("two", BASE), N3: behind})
    await requests.frontend.raise_to_base()
    assert (proposed(requests), requests.machine.table.feature_level) == (0, FIRST)


async def test_a_template_needs_a_level_too() -> None:
    config = StreamConfig(name="", subjects=("t.*",))
    older = requests_beside({N2: Peer("two", None)})
    with pytest.raises(ApiError, match="a template needs feature level"):
        await older.frontend.add_template(ACCOUNT, "T", config, 5)
    assert proposed(older) == 0
    requests = requests_beside({N2: Peer("two", LEVEL)})
    await requests.frontend.add_template(ACCOUNT, "T", config, 5)
    assert requests.machine.table.feature_level == TEMPLATES


async def test_what_no_member_could_decode_is_not_proposed() -> None:
    """It would stop the meta group on every one of them."""
    requests = requests_beside({})
    with pytest.raises(BadCommandError):
        await requests.frontend.create("A" * (TEXT_BYTES_MAX + 1), PLAIN, pedantic=False)
    assert proposed(requests) == 0


@pytest.mark.parametrize(
    ("metadata", "former", "level"),
    [(NEW.metadata, None, LEVEL), ({}, Former(peers=(N1,), replicas=1, placement=None), MOVES)],
)
async def test_a_row_that_is_taken_back_needs_the_level_of_what_it_has(
    metadata: dict[str, str], former: Former | None, level: int
) -> None:
    """Damage may have cost the table its level together with the row."""
    config = StreamConfig(name="S", subjects=("s",), metadata=metadata)
    row = attrs.evolve(assignment("S"), config=config, former=former)
    requests = requests_beside({})
    await requests.frontend.adopt(row)
    assert (requests.machine.table.feature_level, requests.machine.table.streams[row.key].former) == (level, former)
    kept_back = requests_beside({}, own_level=FIRST)
    with pytest.raises(ApiError, match="needs feature level"):
        await kept_back.frontend.adopt(row)


async def test_a_server_that_is_kept_at_a_level_keeps_the_cluster_there() -> None:
    requests = requests_beside({N2: Peer("two", LEVEL)}, own_level=FIRST)
    with pytest.raises(ApiError, match=r"first: one$"):
        await requests.create(NEW)


def test_a_stream_needs_the_highest_level_of_its_keys() -> None:
    assert needed_by(NEW, {}) == (FIRST, "")
    assert needed_by(PLAIN, KEYS) == (FIRST, "")
    assert needed_by(NEW, {DELAYED: 3, MAX_SUBJECTS: 4}) == (3, DELAYED)
    assert all(FIRST < level <= LEVEL for level in STREAM_KEYS.values())
    assert set(STREAM_KEYS) == {CHAIN, SCHEMA}


def test_keys_that_end_with_a_number_need_the_level_of_those_without() -> None:
    config = StreamConfig(name="S", metadata={"jetraft.schema_type.2": "json", "jetraft.schema.2": "{}"})
    assert needed_by(config) == (2, SCHEMA)


@pytest.mark.parametrize("told", ["2", 0, -1, True, 1 << 17, None])
def test_a_level_that_makes_no_sense_is_the_first(told: object) -> None:
    assert unpack_profile({KEY: {**NodeProfile(level=2).pack(), "level": told}}).level == FIRST
    assert unpack_profile({KEY: NodeProfile(level=2).pack()}).level == 2


def test_the_members_that_are_behind_are_named() -> None:
    requests = requests_beside({N2: Peer("two", 1), N3: Peer("three", 2)}, own_level=2)
    assert requests.view.behind(1) == []
    assert requests.view.behind(2) == ["two"]
    assert requests.view.behind(3) == ["one", "three", "two"]
    assert N1 in requests.view.online()
