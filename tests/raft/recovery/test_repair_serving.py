"""What a member is not made to do by who asks for entries."""

from typing import TYPE_CHECKING

import msgpack
import pytest

from jetraft.raft.mesh.rpc import RemoteCallError
from jetraft.raft.recovery.bounds import TERMS_AHEAD_MAX
from tests.raft.recovery.test_repair import GROUP_ID, A, B, Node, entry

if TYPE_CHECKING:
    from jetraft.store.model.ids import NodeId


@pytest.mark.parametrize("end", [[], ["end"]])
@pytest.mark.parametrize("ahead", [TERMS_AHEAD_MAX + 1, 1 << 62, (1 << 63) - 2])
async def test_nobody_promises_a_term_out_of_the_blue(end: list[str], ahead: int) -> None:
    """A promise is durable: with one request a peer could use up all the terms that a group has left."""
    wire: dict[NodeId, Node] = {}
    node = Node(wire, A)
    node.write([entry(1), entry(2)])
    node.lead(2)
    log = node.manager.groups[GROUP_ID].log
    before = log.hard_state.term
    assert node.handler is not None

    with pytest.raises(RemoteCallError):
        await node.handler(B, bytes(msgpack.packb([GROUP_ID, 7, *end, 100, 100, before + ahead])))
    assert log.hard_state.term == before

    await node.handler(B, bytes(msgpack.packb([GROUP_ID, 7, *end, 100, 100, before + TERMS_AHEAD_MAX])))
    assert log.hard_state.term == before + TERMS_AHEAD_MAX
