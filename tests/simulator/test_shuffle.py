"""The directed generator finds nothing in either engine, and plays what it says."""

import pytest

from tests.harness.forms import examples
from tests.simulator.engines import ENGINES, one_of_each
from tests.simulator.shuffle import Shuffle

SEEDS = examples(100, long=300)


@pytest.mark.long_form
@pytest.mark.parametrize(
    "engine", [ENGINES["core"], ENGINES["pysyncobj"], one_of_each], ids=["core", "pysyncobj", "both"]
)
def test_messages_in_any_order_break_no_promise(engine: object) -> None:
    committed = 0
    for seed in range(SEEDS):
        shuffle = Shuffle(seed, engine=engine)  # type: ignore[arg-type]  # a table of factories
        assert shuffle.run() is None, f"seed {seed}"
        committed += shuffle.committed
    assert committed > SEEDS, "a run in which nothing is committed shows nothing"
