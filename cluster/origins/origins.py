"""The origins of one stream for one term of leadership: those that its configuration names now.

A mirror has one. A stream with sources has one for each; a source that is left out of the configuration ends, and its
position stays, so that it goes on there when it is named again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from jetraft.cluster.origins.mirror import MirrorIntake
from jetraft.cluster.origins.reader import OriginReader
from jetraft.cluster.origins.source import Admitting, SourceIntake
from jetraft.cluster.origins.subjects import SubjectChanges
from jetraft.cluster.state.source_header import key_of
from jetraft.store.model.state import ErrorView, StreamSourceInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jetraft.cluster.origins.reader import OriginStatus
    from jetraft.cluster.site import Site
    from jetraft.cluster.state.machine import StreamMachine
    from jetraft.raft.group import Group
    from jetraft.store.model.api_error import ApiError
    from jetraft.store.model.config import StreamConfig, StreamSource

NEVER_ACTIVE_NS = -1
AT_ONCE_MAX: Final = 32  # sources that begin together; more begin in slices of turns (cluster/turn_work.py)


class Leader(Admitting, Protocol):
    """The leader of the stream, as its origins see it."""

    def refusal(self) -> ApiError | None:
        """Why nothing can be stored now."""

    def mirrored(self, first_seq: int, records: bytes) -> None:
        """Records of the mirror are committed, and not applied yet."""

    def mirror_caught_up(self) -> None:
        """The mirror has everything that its origin has."""


class Origins:
    """See the module. `follow` starts it."""

    def __init__(self, site: Site, group: Group, machine: StreamMachine, leader: Leader) -> None:
        self._site = site
        self._group = group
        self._machine = machine
        self._leader = leader
        self._mirror: OriginReader | None = None
        self._subjects: SubjectChanges | None = None  # of the mirror
        self._sources: dict[bytes, OriginReader] = {}
        self._to_begin: dict[bytes, StreamSource] = {}  # those that have no reader yet
        self._stream = ""
        self._positions: dict[bytes, int] = {}  # of sources that were left out in this term

    def follow(self, config: StreamConfig) -> None:
        """Read what this configuration names, and nothing else."""
        if config.mirror is None and self._mirror is not None:
            self._mirror.end(for_good=True)
            self._mirror = None
        elif config.mirror is not None and self._mirror is None:
            self._subjects = SubjectChanges(
                config.mirror.subject_transforms, self._site.rng.randrange, config.subject_transform
            )
            self._mirror = self._mirror_of(config.mirror, config.name, self._subjects)
            self._mirror.start()
        elif self._subjects is not None:
            self._subjects.follow(config.subject_transform)
        wanted = {key_of(source): source for source in named_sources(config)}
        for key in [key for key, reader in self._sources.items() if wanted.get(key) != reader.source]:
            reader = self._sources.pop(key)
            reader.end(for_good=True)
            # What it has proposed may not be applied yet: should the source come back, it goes on behind that.
            self._positions[key] = reader.intake.position
        was_beginning = bool(self._to_begin)
        self._to_begin = {key: source for key, source in wanted.items() if key not in self._sources}
        self._stream = config.name
        if len(self._to_begin) <= AT_ONCE_MAX or not (was_beginning or self._site.work.add(self, self._begin_some)):
            self._begin_some(None)

    def _begin_some(self, until_ns: int | None) -> bool:
        """Begin to read sources, until this time if it is given; True when some are left."""
        while self._to_begin:
            key = next(iter(self._to_begin))
            self._sources[key] = self._source_of(self._to_begin.pop(key), self._stream)
            self._sources[key].start()
            if until_ns is not None and self._site.clock.mono_ns() > until_ns:
                break
        return bool(self._to_begin)

    def applied(self) -> None:
        """More of the stream is applied."""
        last_seq = self._machine.last_seq
        if self._mirror is not None:
            self._mirror.applied(last_seq)
        for reader in self._sources.values():
            reader.applied(last_seq)

    def end(self, *, is_removed: bool) -> None:
        """Leadership is over, or the stream is removed."""
        for reader in self._readers():
            reader.end(for_good=is_removed)
        self._mirror, self._sources, self._to_begin = None, {}, {}

    @property
    def proposed_seq(self) -> int:
        """The last sequence that a mirror has proposed; 0 for any other stream."""
        return 0 if self._mirror is None else self._mirror.intake.proposed_seq

    def mirror_status(self) -> OriginStatus | None:
        """Of a mirror's origin."""
        return None if self._mirror is None else self._mirror.status()

    def source_status(self, source: StreamSource) -> OriginStatus | None:
        """Of one source."""
        reader = self._sources.get(key_of(source))
        return None if reader is None else reader.status()

    def _readers(self) -> Iterable[OriginReader]:
        return [*([] if self._mirror is None else [self._mirror]), *self._sources.values()]

    def _mirror_of(self, origin: StreamSource, stream: str, subjects: SubjectChanges) -> OriginReader:
        leader = self._leader
        intake = MirrorIntake(
            self._group, self._machine, subjects=subjects, refusal=leader.refusal, stored=leader.mirrored
        )
        metadata = self._metadata("mirror", stream)
        return OriginReader(
            self._site,
            origin,
            intake,
            stream=stream,
            letter="M",
            metadata=metadata,
            caught_up=self._leader.mirror_caught_up,
        )

    def _source_of(self, origin: StreamSource, stream: str) -> OriginReader:
        subjects = SubjectChanges(origin.subject_transforms, self._site.rng.randrange)
        begun = self._positions.pop(key_of(origin), 0)
        intake = SourceIntake(
            self._group,
            self._machine,
            self._leader,
            origin,
            subjects=subjects,
            behind=begun,
            level_in_use=self._site.level_in_use,
        )
        metadata = self._metadata("src", stream)
        return OriginReader(self._site, origin, intake, stream=stream, letter="S", metadata=metadata)

    def _metadata(self, kind: str, stream: str) -> dict[str, str]:
        """The consumer's metadata about its reader."""
        found = {f"_nats.{kind}.acc": self._site.account, f"_nats.{kind}.stream": stream}
        return {**found, f"_nats.{kind}.domain": self._site.domain} if self._site.domain else found


def named_sources(config: StreamConfig) -> list[StreamSource]:
    """The sources of a configuration."""
    return [source for source in config.sources if source is not None]


def mirror_info(config: StreamConfig, origins: Origins | None) -> StreamSourceInfo | None:
    """The `mirror` of stream info; a replica that does not lead knows no more than the configuration."""
    if config.mirror is None:
        return None
    return _info(config.mirror, None if origins is None else origins.mirror_status(), 0)


def source_infos(config: StreamConfig, machine: StreamMachine, origins: Origins | None) -> tuple[StreamSourceInfo, ...]:
    """The `sources` of stream info."""
    infos = []
    for source in named_sources(config):
        position = machine.sources.get(key_of(source))
        status = None if origins is None else origins.source_status(source)
        infos.append(_info(source, status, 0 if position is None else position.seq))
    return tuple(infos)


def _info(source: StreamSource, status: OriginStatus | None, seq: int) -> StreamSourceInfo:
    error = None if status is None else status.error
    return StreamSourceInfo(
        name=source.name,
        external=source.external,
        lag=0 if status is None else status.lag,
        seq=seq,
        active_ns=NEVER_ACTIVE_NS if status is None else status.active_ns,
        error=None
        if error is None
        else ErrorView(code=error.code, err_code=error.err_code, description=error.description),
        filter_subject=source.filter_subject,
        subject_transforms=source.subject_transforms,
    )
