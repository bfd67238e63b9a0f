"""Every cell of the table of origins and sinks, changed once: the matrix of test_origins.py must notice.

Beside the comparison of the two tables, which is left out here: a change that both have is noticed by no table.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import product

import pytest

from jetraft.cluster.capture import reach
from jetraft.cluster.capture.reach import MessageOrigin, SinkKind
from tests.api.plane import test_origins as matrix

pytestmark = pytest.mark.mutation

CELLS = list(product(MessageOrigin, SinkKind))
# A node that says no origins, and requests of leaf nodes for services: the matrix does not send these.
UNSENT = {(MessageOrigin.LINK, kind) for kind in SinkKind if kind is not SinkKind.API} | {
    (MessageOrigin.LEAF, SinkKind.SERVICE)
}


def claims(kind: SinkKind) -> list[Callable[[], None]]:
    """The tests of the matrix that send to a kind of sink."""
    found: list[Callable[[], None]] = [
        partial(matrix.test_a_message_reaches_the_sinks_that_the_table_says, each, where)
        for each, where in matrix.pairs()
        if each is kind
    ]
    if kind is not SinkKind.SERVICE:
        heard = matrix.test_a_leaf_node_is_heard_as_a_client_and_what_it_delivers_as_a_delivery
        found += [partial(heard, kind), matrix.test_interest_is_that_of_receivers_whom_such_a_message_reaches]
    return [*found, *(partial(matrix.test_a_node_that_says_origins_is_believed, one) for one in MessageOrigin)]


@pytest.mark.parametrize(("origin", "kind"), [cell for cell in CELLS if cell not in UNSENT])
def test_a_changed_cell_is_noticed(origin: MessageOrigin, kind: SinkKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reach.REACHES, origin, reach.REACHES[origin] ^ {kind})
    noticed = 0
    for claim in claims(kind):
        with suppress(Exception):
            claim()
            continue
        noticed += 1
    assert noticed


def test_a_message_whose_origin_is_forgotten_on_its_way_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delivery that counts as a client's publish: the defect for which there is a table."""
    monkeypatch.setitem(reach.REACHES, MessageOrigin.DELIVERY, reach.REACHES[MessageOrigin.CLIENT])
    with pytest.raises(AssertionError):
        matrix.test_a_message_reaches_the_sinks_that_the_table_says(SinkKind.API, "linked")
