"""STREAM.INFO with a filter of subjects: one page of them, whatever the stream holds."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import trio

from jetraft.api.jetstream.call import Call
from jetraft.api.jetstream.handlers import streams
from jetraft.store.model.state import StreamInfo
from jetraft.store.stream._subjtree import SubjectTree
from jetraft.store.stream.indexed_stream import IndexedStream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetraft.cluster.requests.service import ClusterService

SUBJECTS = 50
PAGE = 20


class Counting:
    """A tree that counts the names that are asked of it."""

    def __init__(self) -> None:
        self.tree = SubjectTree()
        self.names = 0

    def match(self, wanted: bytes) -> list[int]:
        return self.tree.match(wanted)

    def count_of(self, subject_id: int) -> int:
        return self.tree.count_of(subject_id)

    def name_of(self, subject_id: int) -> bytes:
        self.names += 1
        return self.tree.name_of(subject_id)


def service_over(tree: Counting) -> "ClusterService":
    """One stream, led here."""
    store = SimpleNamespace(_index=SimpleNamespace(tree=tree))
    store.page_of_subjects = lambda *words, **page: IndexedStream.page_of_subjects(
        cast("IndexedStream", store), *words, **page
    )
    replica = SimpleNamespace(machine=SimpleNamespace(store=store), info=StreamInfo, settled=trio.lowlevel.checkpoint)
    owners = SimpleNamespace(leading=lambda *_: replica)
    return cast("ClusterService", SimpleNamespace(owners=owners, alternates_of=lambda *_: ()))


@pytest.mark.parametrize(
    ("offset", "first", "count"), [(0, 0, PAGE), (30, 30, PAGE), (45, 45, 5), (99, 0, 0), (-3, 0, PAGE)]
)
async def test_only_the_subjects_of_the_page_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, offset: int, first: int, count: int
) -> None:
    """With a million subjects the rest of them kept the event loop busy for most of a second."""
    monkeypatch.setattr(streams, "SUBJECTS_PAGE", PAGE)
    tree = Counting()
    for number in range(SUBJECTS):
        tree.tree.add(b"s.%02d" % number)
    body = b'{"subjects_filter":">","offset":%d}' % offset
    answer = await streams.info(service_over(tree), Call(account="$G", names=("S",), body=body))
    state = cast("Mapping[str, object]", answer["state"])
    assert state.get("subjects", {}) == {f"s.{number:02}": 1 for number in range(first, first + count)}
    assert (answer["total"], answer["limit"]) == (SUBJECTS, PAGE)
    assert tree.names == count
