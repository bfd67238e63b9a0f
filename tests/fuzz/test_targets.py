"""No reader of bytes that a stranger chooses fails in a way of its own. `make fuzz` looks longer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS
from tests.harness.forms import examples

pytestmark = pytest.mark.campaign

INSERTED = (b"", b"\0", b"\r\n", b" ", b"\xff" * 4, b"\x80", b"{", b"[" * 100, b"9" * 30, b'"', b".>", b"$")


@st.composite
def changed(draw: st.DrawFn, seeds: tuple[bytes, ...]) -> bytes:
    """An input that is accepted, with up to six changes; or any bytes."""
    data = bytearray(draw(st.sampled_from([*seeds, b""])) or draw(st.binary(max_size=200)))
    for _ in range(draw(st.integers(0, 6))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.integers(0, 8)))
        other = draw(st.sampled_from([*INSERTED, *seeds]) | st.binary(max_size=4))
        data[begin:end] = other
    return bytes(data)


@pytest.mark.long_form
@pytest.mark.parametrize("name", TARGETS)
def test_a_reader_takes_any_bytes(name: str) -> None:
    target = TARGETS[name]

    @settings(max_examples=examples(400, long=20_000), deadline=None)
    @given(changed(target.seeds))
    def play(data: bytes) -> None:
        target.run(data)

    play()


@pytest.mark.parametrize("name", TARGETS)
def test_the_inputs_to_begin_with_are_read(name: str) -> None:
    for data in TARGETS[name].seeds:
        TARGETS[name].run(data)
