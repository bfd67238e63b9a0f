"""Catching up inside the simulator: the real fetch and its answers, with calls as plain messages.

It does what `jetraft.raft.recovery.catchup` does with trio: one fetch at a time, an interrupted one goes on with the
next offer, and what is being installed is left alone, whatever is offered meanwhile. The owner of the replica may be
busy: the group goes on until it comes to the installation, which is decided again then.
"""

from functools import partial
from typing import TYPE_CHECKING

import msgpack

from jetraft.raft.engine.messages import SnapshotOffer
from jetraft.raft.group import Group
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.recovery import catchup
from jetraft.raft.recovery.snapshot import SPOILT, SnapshotFetch, SnapshotGoneError, SnapshotRequest, answer, check_part
from jetraft.store.log.snapshot import PartDamagedError
from jetraft.store.model.ids import NodeId
from jetraft.store.port import StoreCorrupt
from tests.simulator.world import MS, World

if TYPE_CHECKING:
    from tests.simulator.host import Host

CHANNEL_ASK, CHANNEL_ANSWER = 2, 3
LEASE_NS = 2000 * MS
REPEATED_NS = 1500 * MS  # after it was taken
BUSY_NS = 2000 * MS  # the owner of the replica, with others
CALM_NS = 50 * MS  # the same once the faults are over (seed forget 5144)


class SimCatchup:
    """One host's part, for one process."""

    def __init__(self, world: World, host: "Host") -> None:
        self._world = world
        self._host = host
        self._fetch: SnapshotFetch | None = None
        self._is_installing = False  # a log in place of the present one, which nobody else may stage now
        host.manager.serve_offers(self._on_offer)
        host.on_peer_down.connect(self._interrupted)
        host.on_frame(CHANNEL_ASK, self._on_request)
        host.on_frame(CHANNEL_ANSWER, self._on_answer)

    def _on_offer(self, group: Group, sender: NodeId, offer: SnapshotOffer) -> None:
        if self._is_installing or group is not self._host.group:
            return
        if self._fetch is None or not self._fetch.continues(sender, offer) or self._fetch.log is not group.log:
            self._abandon()
            self._fetch = SnapshotFetch(
                group_id=group.group_id,
                incarnation=group.incarnation,
                sender=sender,
                offer=offer,
                members=group.configurations.members_at(offer.index, offer.index_term, offer.members),
                log=group.log,
            )
        self._ask()

    def _interrupted(self, node: NodeId) -> None:
        if self._fetch is not None and self._fetch.sender == node:
            self._fetch.resume()

    def _ask(self) -> None:
        fetch = self._fetch
        assert fetch is not None
        request = fetch.next_request()
        if request is not None:
            self._host.send(fetch.sender, CHANNEL_ASK, request.pack())
            return
        self._fetch = None
        group = self._host.group
        group = self._running(fetch)
        if group is not None and catchup.is_behind(group, fetch.offer):
            self._is_installing = True
            busy_ns = CALM_NS if self._world.is_calm else BUSY_NS
            self._host.later(self._world.between(0, busy_ns), lambda: self._install(fetch))

    def _install(self, fetch: SnapshotFetch) -> None:
        """The owner has come to it."""
        assert fetch.staging is not None
        group = self._running(fetch)
        if group is None or not is_behind_still(group, fetch.offer):
            self._is_installing = False
            fetch.abandon()
            return
        self._host.replace_log(fetch, partial(self._installed, fetch))
        if self._world.chance(0.5):
            self._host.later(self._world.between(0, REPEATED_NS), lambda: self._offer_again(fetch))

    def _running(self, fetch: SnapshotFetch) -> Group | None:
        """The group for which this was fetched, while it runs over the same log."""
        group = self._host.group
        return None if group is None or group.log is not fetch.log or group.failed is not None else group

    def _installed(self, fetch: SnapshotFetch, error: PartDamagedError | None) -> None:
        """There is a replica again, over the new log or over the old one: then the sender learns of its damage."""
        self._is_installing = False
        if error is not None:
            self._host.send(fetch.sender, CHANNEL_ASK, fetch.spoilt(error.block).pack())

    def _abandon(self) -> None:
        if self._fetch is not None:
            self._fetch.abandon()
            self._fetch = None

    def _offer_again(self, fetch: SnapshotFetch) -> None:
        """The offer comes once more, late: by then the log may have everything that it has (rule 35)."""
        group = self._host.group
        if group is not None:
            group.step(fetch.sender, fetch.offer, self._host.clock.mono_ns())

    def _on_request(self, sender: NodeId, payload: memoryview) -> None:
        group = self._host.group
        found = None if group is None or group.failed is not None else group.snapshot()
        if group is None or found is None:
            return
        group.hold_checkpoint_until(self._host.clock.mono_ns() + LEASE_NS)
        request = SnapshotRequest.unpack(bytes(payload))
        try:
            if request.what == SPOILT:
                check_part(group.log, found[0], request)()
                return
            piece = answer(group.log, *found, request)
        except SnapshotGoneError:
            piece = None
        except StoreCorrupt as error:
            self._world.counts["senders mended"] += 1
            group.distrust(error)
            return
        self._host.send(sender, CHANNEL_ANSWER, msgpack.packb([bytes(payload), piece]))

    def _on_answer(self, sender: NodeId, payload: memoryview) -> None:
        asked, piece = msgpack.unpackb(payload)
        fetch = self._fetch
        if fetch is None or fetch.sender != sender or fetch.asked is None or fetch.asked.pack() != asked:
            return
        group = self._host.group
        has_moved_on = group is None or group.log is not fetch.log  # opened again: what was gathered is gone
        if has_moved_on or not _takes(fetch, piece):  # or the sender numbers its blocks again: wait for the next offer
            self._abandon()
            return
        self._world.counts["pieces"] += 1
        fetch.asked = None
        self._ask()


def is_behind_still(group: Group, offer: SnapshotOffer) -> bool:
    """What `Swap.check` asks when the owner has come to it (rule 37)."""
    return catchup.is_behind(group, offer)


def _takes(fetch: SnapshotFetch, piece: bytes | None) -> bool:
    """Take the answer to a request; False when it is none."""
    if piece is None:
        return False
    try:
        fetch.received(piece)
    except RemoteProtocolError:
        return False
    return True
