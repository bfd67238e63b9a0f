"""Earlier versions read what this one writes at their feature level, and know no form of a higher one.

Their readers are built from the history (previous.py) and run in a process of their own.
"""

import json
from pathlib import Path
from typing import Final

import msgpack
import pytest

from jetraft.cluster.meta.commands import decode, level_needed_by
from jetraft.cluster.state.commands import _LEVELS, decode_consumer_commands, decode_stream_command
from jetraft.store.model.feature_level import BASE, FIRST, LEVEL
from jetraft.store.model.forms import FORMS
from tests.harness.forms import IS_LONG
from tests.releases.previous import BEFORE, NoHistoryError, ask, released, with_modules
from tests.releases.samples import Sample, meta_samples, samples, stream_samples

READERS: Final = (  # extension modules that the readers of the last release import
    "jetraft.cluster.backup._highway",
    "jetraft.cluster.capture._capture",
    "jetraft.store.blocks._window",
    "jetraft.store.disk._writer",
    "jetraft.store.frames._frame",
    "jetraft.store.frames._holes",
    "jetraft.store.frames._thin",
    "jetraft.store.model._fifo",
    "jetraft.store.s2._blocks",
    "jetraft.store.stream._runs",
    "jetraft.store.stream._seqset",
    "jetraft.store.stream._unacked",
)
READERS_BEFORE: Final = ("jetraft.store._runs", "jetraft.store._seqset", "jetraft.store._frame")
KINDS_BEFORE: Final = ("stream", "consumer", "meta")


def version(commit: str, modules: tuple[str, ...]) -> Path:
    try:
        return with_modules(commit, modules)
    except NoHistoryError as error:
        pytest.skip(f"needs the history of the repository: {error}")


def read_by(folder: Path, written: list[Sample]) -> list[str]:
    """The samples that this version does not read, or reads as something else."""
    answers = json.loads(ask(folder, ["decode"], json.dumps([[kind, body.hex()] for _, kind, body in written])))
    return [
        f"{name}: {answer}" for (name, _, body), answer in zip(written, answers, strict=True) if answer != body.hex()
    ]


def test_the_version_before_knows_the_forms_of_its_level_and_no_others() -> None:
    folder = version(released()[1], READERS)
    known = set(json.loads(ask(folder, ["forms"])))
    assert known == {form for form, level in FORMS.items() if level <= BASE}


def test_the_version_before_reads_what_is_written_at_its_level() -> None:
    folder = version(released()[1], READERS)
    assert read_by(folder, samples(BASE)) == []


def test_a_reader_that_is_older_than_a_form_says_so() -> None:
    """The comparison itself: a command that no version has is not read."""
    folder = version(released()[1], READERS)
    unknown = msgpack.packb([99, 1])
    (found,) = read_by(folder, [("stream 99", "stream", unknown)])
    assert "MalformedCommandError" in found


@pytest.mark.long_form
@pytest.mark.skipif(not IS_LONG, reason="compiles three modules of a build that was never released")
def test_builds_from_before_the_first_release_read_logs_that_are_written_at_the_first_level() -> None:
    folder = version(BEFORE, READERS_BEFORE)
    known = set(json.loads(ask(folder, ["ever"])))
    assert known <= {form for form, level in FORMS.items() if level == FIRST}
    written = [sample for sample in samples(FIRST) if sample[1] in KINDS_BEFORE]
    assert read_by(folder, written) == []


@pytest.mark.parametrize("level", range(FIRST, LEVEL + 1))
def test_nothing_above_the_level_in_use_is_written(level: int) -> None:
    for _, kind, body in stream_samples(level):
        written = decode_stream_command(body) if kind == "stream" else None
        for command in decode_consumer_commands(body) if written is None else [written]:
            assert _LEVELS[type(command)] <= level, command
    for _, _, body in meta_samples(level):
        assert level_needed_by(decode(body)) <= level
