"""Messages that were changed on their way."""

from collections.abc import Callable, Sequence
from typing import Final

import msgpack
from hypothesis import strategies as st

INSERTED: Final[list[object]] = [None, True, -1, 2**63, "x", b"x", [], {}, 1.5]


@st.composite
def mangled(draw: Callable[[st.SearchStrategy[int]], int], wires: Sequence[bytes]) -> bytes:
    """One of the messages with up to three changes: another byte, bytes gone, a value put in, an end said twice."""
    data = bytearray(wires[draw(st.integers(0, len(wires) - 1))])
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        change = ("byte", "gone", "value", "twice")[draw(st.integers(0, 3))]
        if change == "byte" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif change == "gone":
            del data[at : at + draw(st.integers(1, 4))]
        elif change == "value":
            data[at:at] = msgpack.packb(INSERTED[draw(st.integers(0, len(INSERTED) - 1))])
        else:
            data += data[at:]
    return bytes(data)
