"""Very many sources begin to be read in slices, and those that are left out meanwhile do not begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from jetraft.cluster.origins import origins
from jetraft.store.model.config import StreamSource
from tests.cluster.lab import Node, start_stream

if TYPE_CHECKING:
    import pytest

COUNT = 200


def test_many_sources_begin_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    step = origins.Origins._begin_some
    begun: list[int] = []

    def hurried(one: origins.Origins, until_ns: int | None) -> bool:
        more = step(one, None if until_ns is None else -1)
        begun.append(len(one._sources))
        return more

    monkeypatch.setattr(origins.Origins, "_begin_some", hurried)
    node = Node()
    sources = tuple(StreamSource(name=f"N{number}") for number in range(COUNT))
    replica = start_stream(node, subjects=(), sources=sources)
    node.sleep(20)
    half = attrs.evolve(replica.config, sources=sources[: COUNT // 2])
    replica.reconfigure(attrs.evolve(replica.assignment, config=half, revision=8))
    node.sleep(1_000_000)

    assert begun[:3] == [1, 2, 3]
    assert begun[-1] == COUNT // 2
