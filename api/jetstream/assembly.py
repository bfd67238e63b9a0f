"""Opens JetStream on a node from the options of the server, and runs it. A failure is said in one line."""

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from jetraft.api.auth.accounts import LiveAccounts
from jetraft.api.jetstream.banner import jetstream_banner
from jetraft.api.jetstream.node import JetStreamNode, JetStreamSetting, secrets_of, store_limits_of
from jetraft.api.logs.logger import Logger
from jetraft.api.logs.start_errors import StartError, cannot_start, first_of
from jetraft.api.options.options import Options
from jetraft.api.sessions.client_info import ClientDirectory
from jetraft.api.sessions.session import ServerIdentity
from jetraft.api.turns.clock import SystemClock
from jetraft.api.turns.reactor import Reactor
from jetraft.api.turns.timers import TrioTimers
from jetraft.cluster.meta.members.bootstrap import expected_nodes
from jetraft.cluster.meta.members.founding import BadRecordError
from jetraft.raft.engine.port import EngineUnavailableError
from jetraft.store.model.steady import SteadyClock
from jetraft.store.port import StoreCorrupt, StoreError, StoreMisplaced

if TYPE_CHECKING:
    from jetraft.raft.mesh.peers import Mesh  # servers that stand alone have none


@attrs.frozen(kw_only=True)
class NodePlace:
    """The parts of the server that JetStream stands on."""

    mesh: "Mesh | None"
    reactor: Reactor
    timers: TrioTimers
    clock: SystemClock
    clients: ClientDirectory


def default_store_dir() -> Path:
    """Where nats-server keeps a store that has no directory."""
    import tempfile  # noqa: PLC0415  it loads more than all other parts of the library here, and few servers need it

    return Path(tempfile.gettempdir()) / "nats"


def open_jetstream(
    options: Options, identity: ServerIdentity, accounts: LiveAccounts, place: NodePlace, say: Logger
) -> JetStreamNode:
    """Open the store and make the parts. Raises StartError."""
    block = options.jetstream
    assert block is not None
    setting = JetStreamSetting(
        store_dir=Path(block.store_dir or default_store_dir()) / "jetstream",
        server_name=identity.server_name,
        named=bool(options.server_name),
        cluster_name=identity.cluster_name or None,
        domain=block.domain,
        server_id=identity.server_id,
        system_account=options.system_account,
        expected_nodes=expected_nodes(len(set(options.cluster.routes)) if options.cluster else 0),
        cache_bytes_max=block.cache_bytes_max,
        raft_engine=block.raft_engine,
        store_limits=store_limits_of(block),
        tags=options.server_tags,
        unique_tag=block.unique_tag,
        secrets=secrets_of(block),
        scrub=block.scrub,
        limits=block.limits,
        strict=block.strict,
        streams=block.streams,
        legacy_api=block.legacy_api,
        feature_level=block.feature_level,
        accounts=accounts,
    )
    try:
        node = JetStreamNode.open(
            setting,
            mesh=place.mesh,
            reactor=place.reactor,
            timers=place.timers,
            clock=SteadyClock(place.clock, elapsed_ns=place.clock.elapsed_ns),
            clients=place.clients,
            memory=place.clients.sessions.memory,
        )
    except (EngineUnavailableError, BadRecordError, StoreError, OSError) as error:
        raise StartError(cannot_start(error, is_damage=is_damage(error))) from error
    for line in jetstream_banner(block, setting.store_dir, node.capacity):
        say.info(line)
    return node


async def run_jetstream(node: JetStreamNode, *, task_status: trio.TaskStatus[None]) -> None:
    """Run JetStream. Raises StartError, in one line, for an error that an operator has to act on."""
    is_started = False
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            is_started = True
            task_status.started()
    except* (StoreError, BadRecordError, OSError) as failed:
        error = first_of(failed)
        if is_started and isinstance(error, OSError):
            raise  # unexpected: the traceback is needed
        raise StartError(cannot_start(error, is_damage=is_damage(error))) from failed


def is_damage(error: BaseException) -> bool:
    """Whether the store says that it is damaged."""
    return isinstance(error, (StoreCorrupt, StoreMisplaced, BadRecordError))
