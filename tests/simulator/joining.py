"""A host that has lost its disk asks to be admitted: the leader's part is the real one, the calls are messages."""

from typing import TYPE_CHECKING

import msgpack

from jetraft.raft.engine.membership import Configuration, settled_of
from jetraft.raft.recovery.joining import MemberAdmission, admit
from jetraft.store.model.ids import NodeId
from tests.simulator.world import MS, World

if TYPE_CHECKING:
    from tests.simulator.host import Host

CHANNEL_JOIN, CHANNEL_ADMIT = 4, 5
RETRY_NS = 200 * MS


class SimJoining:
    """One host's part, for one process."""

    def __init__(self, world: World, host: "Host") -> None:
        self._world = world
        self._host = host
        self._asked = 0
        self.has_answer = False  # it was admitted, and writes that down
        host.on_frame(CHANNEL_JOIN, self._on_request)
        host.on_frame(CHANNEL_ADMIT, self._on_answer)

    def ask(self) -> None:
        """Ask everybody, again and again until somebody has answered."""
        self._asked = self._world.rng.getrandbits(60)
        for node in self._host.others:
            self._host.send(node, CHANNEL_JOIN, msgpack.packb(self._asked))

    def _on_request(self, sender: NodeId, payload: memoryview) -> None:
        number = msgpack.unpackb(payload)
        group = self._host.group
        if group is None:
            return
        group.has_no_replica(sender)
        if not group.is_leader:
            return

        def done(result: MemberAdmission | str) -> None:
            if isinstance(result, MemberAdmission):
                answer = [
                    number,
                    result.term,
                    result.vote,
                    result.configuration.encode(settled=result.settled),
                ]
                self._host.send(sender, CHANNEL_ADMIT, msgpack.packb(answer))
                if self._host.replica is not None:
                    self._host.replica.look_after_members()  # it is to vote again (`Joining.on_admitted`)

        admit(group, sender, done)

    def _on_answer(self, _sender: NodeId, payload: memoryview) -> None:
        number, term, vote, packed = msgpack.unpackb(payload)
        if number == self._asked and self._asked:
            self._asked, self.has_answer = 0, True
            configuration, settled = Configuration.decode(packed), settled_of(packed)
            self._host.admitted(MemberAdmission(configuration=configuration, term=term, vote=vote, settled=settled))
