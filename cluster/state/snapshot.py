"""The form of a snapshot of a stream's state: what is in it, as msgpack, and what earlier versions lack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import msgpack
import orjson

from jetraft.cluster.state.consumer_configs import read_config
from jetraft.cluster.state.source_header import SourcePosition
from jetraft.store.stream.consumer_state import ConsumerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jetraft.store.model.config import ConsumerConfig, StreamConfig

# Version 1 has no revision of the configuration, version 2 no schedules, version 3 no positions of sources, version 4
# no chain.
SNAPSHOT_VERSION: Final = 5
WITHOUT_CHAIN: Final = 4  # written where there is none, so that earlier servers read it
WITHOUT_SOURCES: Final = 3  # the same
WITHOUT_SCHEDULES: Final = 2  # the same
BEFORE_TTL: Final = 4  # items: version, configuration, store, duplicates


@attrs.frozen(kw_only=True, slots=True)
class Snapshot:
    """The state after one entry. The tables of the store, of duplicates and of times to live are in their own forms.

    The last one may be made later, as it may be long: `around_ttl` has what is before and behind it.
    """

    config: bytes  # empty before the first entry
    store: Any
    dedup: Any
    ttl: bytes | memoryview = b""  # TtlCopy.pack: a million pairs, of which no object is made
    last_msg_id: bytes
    config_revision: int
    schedules: Any
    sources: Mapping[bytes, SourcePosition]
    chain: Any  # MerkleTree.pack; None of a stream without a chain
    consumers: Iterable[ConsumerState]

    def around_ttl(self) -> tuple[bytes, bytes]:
        """All but the table of times to live as msgpack; as earlier servers read it where they know its parts."""
        sources = [(key, at.seq, at.identity) for key, at in self.sources.items()]
        version, tables = WITHOUT_SCHEDULES, tuple[object, ...]()
        if self.chain is not None:
            version, tables = SNAPSHOT_VERSION, (self.schedules, sources, self.chain)
        elif sources:
            version, tables = WITHOUT_CHAIN, (self.schedules, sources)
        elif self.schedules:
            version, tables = WITHOUT_SOURCES, (self.schedules,)
        before = version, self.config, self.store, self.dedup
        after = self.last_msg_id, self.config_revision, *tables
        packer = msgpack.Packer()
        head = [packer.pack_array_header(len(before) + 1 + len(after) + 1), *map(packer.pack, before)]
        parts = [*map(packer.pack, after)]
        consumers = tuple(self.consumers)
        parts.append(packer.pack_array_header(len(consumers)))
        pair = packer.pack_array_header(2)
        for state in consumers:  # a hundred thousand, most of which are as they were the last time
            if not state.packed:
                state.packed = state.pack()
            parts += (pair, packer.pack(config_json_of(state)), state.packed)
        return b"".join(head), b"".join(parts)

    @classmethod
    def decode(cls, state: bytes) -> Snapshot:
        """The reverse, of any version up to this one."""
        unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=max(1, len(state)))
        unpacker.feed(state)
        count = unpacker.read_array_header()
        version, config, store, dedup = (unpacker.unpack() for _ in range(BEFORE_TTL))
        ttl_at = unpacker.tell()
        unpacker.skip()
        ttl = memoryview(state)[ttl_at : unpacker.tell()]
        last_msg_id, *rest = (unpacker.unpack() for _ in range(count - BEFORE_TTL - 1))
        assert 1 <= version <= SNAPSHOT_VERSION, f"a snapshot of format {version}"
        revision, *tables, consumers = rest if version > 1 else (0, *rest)
        sources = tables[1] if version > WITHOUT_SOURCES else ()
        return cls(
            config=config,
            store=store,
            dedup=dedup,
            ttl=ttl,
            last_msg_id=last_msg_id,
            config_revision=revision,
            schedules=tables[0] if tables else (),
            sources={key: SourcePosition(seq, identity) for key, seq, identity in sources},
            chain=tables[2] if version > WITHOUT_CHAIN else None,
            consumers=[_consumer_of(body, tail) for body, tail in consumers],
        )


def encode_config(config: StreamConfig | ConsumerConfig) -> bytes:
    """A configuration as the log keeps it: its JSON."""
    return orjson.dumps(config.to_json_dict())


def config_json_of(state: ConsumerState) -> bytes:
    """The same of a consumer, worked out once: a stream may have a hundred thousand, most of which rest."""
    if not state.config_json:
        state.config_json = encode_config(state.config)
    return state.config_json


def _consumer_of(config_json: bytes, tail: Any) -> ConsumerState:
    consumer = ConsumerState.from_tuple(read_config(config_json, tail[1]), tail)
    consumer.config_json = config_json
    return consumer
