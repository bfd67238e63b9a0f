"""No request holds the server, and what a request costs grows no faster than n log n: the short form of the cases."""

from pathlib import Path

import attrs

from jetraft.api.jetstream.dispatch import OPERATIONS
from jetraft.store.model import requests
from jetraft.store.model.config import CreateConsumerRequest, StreamConfigRequest
from jetraft.store.model.encoding.jsoncodec import WireObject
from jetraft.store.model.requests import JSApiMsgGetRequest
from tests.scaling.cases import Case, all_cases, body_class
from tests.scaling.measure import SHORT, Cost, faults, filled

SIZES = (10, 1_000)
SAMPLE = 6  # each so many-th of the cases with lists: `make bench-scaling` has all, at more sizes, and in a full server
INNER = {"StreamTemplateConfig"}  # has a configuration in it that other requests have


def test_lists_patterns_and_bursts_cost_no_more_than_n_log_n(tmp_path: Path) -> None:
    cases = [case for case in all_cases() if case.is_many][::SAMPLE]
    slow: list[str] = []
    with filled(tmp_path, SHORT) as meter:
        for case in cases:
            slow += [f"{case.name}: {fault}" for fault in faults(meter.curve(case, SIZES))]
            assert meter.server.running.running, case.name
    assert slow == []


def test_every_body_of_the_api_is_asked_for() -> None:
    asked = {body_class(operation) for operation in OPERATIONS} - {None}
    bodies = {
        named
        for named in vars(requests).values()
        if isinstance(named, type)
        and issubclass(named, WireObject)
        and named.__module__ == requests.__name__
        and attrs.has(named)
        and ("Request" in named.__name__ or named.__name__ in INNER)
    }
    assert bodies | {StreamConfigRequest, CreateConsumerRequest, JSApiMsgGetRequest} == asked


def test_each_field_of_a_configuration_has_a_case() -> None:
    names = [case.name for case in all_cases()]
    for cls, prefix in (
        (StreamConfigRequest, "STREAM.CREATE.* "),
        (CreateConsumerRequest, "CONSUMER.CREATE.*.* config."),
    ):
        config = attrs.fields(cls).config.type
        for field in attrs.fields(type(cls().config)) if config is not None else ():
            assert any(name.startswith(prefix + field.name) for name in names), field.name


def test_a_square_and_a_long_step_are_noticed() -> None:
    square = [Cost(10, 100_000, 100_000), Cost(100, 10_000_000, 1_000_000), Cost(1_000, 1_000_000_000, 19_000_000)]
    assert len(faults(square)) == 1
    assert len(faults([Cost(10, 30_000_000, 21_000_000)])) == 1
    assert faults([Cost(10, 1_000_000, 1_000_000), Cost(100, 20_000_000, 19_000_000)]) == []


def test_a_case_without_growth_is_asked_once() -> None:
    assert Case("/varz (every flag)", lambda _size, _inbox: None, grows=False).is_many
