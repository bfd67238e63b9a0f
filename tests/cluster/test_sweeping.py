"""Data of streams that were deleted while a node was away is looked for again and again."""

import errno
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from jetraft.cluster import node as node_module
from jetraft.cluster.node import SWEEP_S, ClusterNode


async def at_once(function: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return function()


async def test_too_few_descriptors_put_it_off_and_do_not_end_the_server(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    del autojump_clock
    monkeypatch.setattr(node_module, "run_blocking", at_once)
    calls: list[str] = []
    failing = ["empty", "sweep"]

    def note(name: str) -> None:
        calls.append(name)
        if name in failing:
            failing.remove(name)
            raise OSError(errno.EMFILE, "too many open files")

    async def awaited(name: str) -> None:
        await trio.lowlevel.checkpoint()
        note(name)

    node = SimpleNamespace(
        _ports=SimpleNamespace(node_dir=SimpleNamespace(empty_trash=lambda: note("empty"))),
        currency=SimpleNamespace(is_proved=True),
        _adopt=lambda: awaited("adopt"),
        backend=SimpleNamespace(settle=lambda: awaited("settle"), sweep=lambda: awaited("sweep")),
    )
    with trio.move_on_after(2.5 * SWEEP_S):
        await ClusterNode._sweep(cast("ClusterNode", node))

    assert calls[:7] == ["empty", "empty", "adopt", "settle", "sweep", "adopt", "settle"]
    assert calls.count("sweep") == 2
