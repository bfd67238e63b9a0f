"""The text format, read back by the client library of Prometheus."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from jetraft.api.monitor.exposition import Family, histogram, page_text


def read(*families: Family) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Name of a sample -> labels and value of each."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page_text(families).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 1 << 50) | st.floats(allow_nan=False))
def test_any_label_and_value_is_read_as_it_was_written(text: str, value: float) -> None:
    family = Family(name="jetraft_x", kind="gauge", about="An example.")
    family.add(value, {"stream": text, "other": "y"})
    family.add(2)
    assert read(family) == {"jetraft_x": [({"stream": text, "other": "y"}, value), ({}, 2)]}


def test_a_family_without_samples_is_left_out() -> None:
    assert page_text([Family(name="jetraft_x", kind="gauge", about="An example.")]) == b""


def test_a_histogram_counts_up_to_each_bound_and_has_sum_and_count() -> None:
    found = read(histogram("jetraft_t", "An example.", bounds=[0.5, 1.0], counts=[3, 0, 2], total=7.5))
    assert [(labels["le"], value) for labels, value in found["jetraft_t_bucket"]] == [
        ("0.5", 3),
        ("1.0", 3),
        ("+Inf", 5),
    ]
    assert (found["jetraft_t_sum"], found["jetraft_t_count"]) == ([({}, 7.5)], [({}, 5)])
