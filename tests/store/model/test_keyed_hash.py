"""Names that a client can write down do not fall together, in the table of subjects of a stream.

Both attacks know the constants of the hash and not its key. Each made every look-up pass all the names before it.
"""

import itertools
import struct
from collections.abc import Callable

import pytest

from jetraft.store.stream._subjtree import SubjectTree

NAMES = 4096
MULTIPLIER = 0xD1B54A32D192ED03
SLOTS_PASSED_MAX = 8  # on average, for names that are there; linear probing below 3/4 takes 2.5


def annulled() -> list[bytes]:
    """A word in them is the constant that it is combined with: a product of 0, whatever the other factor is."""
    return [b"%08d" % number + struct.pack("<Q", MULTIPLIER) + b"the rest" for number in range(NAMES)]


def cancelled() -> list[bytes]:
    """Two words differ in their highest bit, and in the bits in which that shows after a multiplication."""
    plain = b"abcdefghijklmnop"
    first, second = struct.unpack("<QQ", plain)
    changed = struct.pack("<QQ", first ^ 1 << 63, second ^ (1 << 63 | 1 << 31))
    length = NAMES.bit_length() - 1
    return [b"".join(words) + b"the rest" for words in itertools.product([plain, changed], repeat=length)]


def exchanged() -> list[bytes]:
    """The two words that are multiplied change places."""
    one, other = b"abcdefgh", b"ijklmnop"
    length = NAMES.bit_length() - 1
    return [b"".join(words) + b"the rest" for words in itertools.product([one + other, other + one], repeat=length)]


def ordinary() -> list[bytes]:
    return [b"orders.%d" % number for number in range(NAMES)]


@pytest.mark.parametrize("make", [annulled, cancelled, exchanged, ordinary])
def test_names_are_found_within_a_few_slots(make: Callable[[], list[bytes]]) -> None:
    tree = SubjectTree()
    names = make()
    assert len(set(names)) == NAMES
    for name in names:
        tree.add(name)
    assert sum(tree.slots_passed(name) for name in names) <= SLOTS_PASSED_MAX * NAMES
