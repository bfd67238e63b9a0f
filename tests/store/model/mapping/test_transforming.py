"""Subjects that are transformed one at a time; what they become is nats-server 2.15.1's."""

import random

import pytest

from jetraft.store.model.mapping.transforming import transform_between, transformed
from jetraft.store.model.mapping.transforms import TransformError


def made(source: str, destination: str, subject: bytes) -> bytes | None:
    transform = transform_between(source, destination)
    assert transform is not None
    return transformed(transform, subject, random.Random(1).randrange)


@pytest.mark.parametrize(
    ("source", "destination", "subject", "becomes"),
    [
        ("a.*.*", "b.$2.{{wildcard(1)}}", b"a.x.y", b"b.y.x"),
        ("a.*.*", "b.$2", b"a.x", None),
        ("", "b.>", b"x.y", b"b.x.y"),
        ("a.>", "b.c.>", b"a.x.y", b"b.c.x.y"),
        ("a.*.>", "{{left(1,2)}}.{{right(1,2)}}.>", b"a.xyz.q", b"xy.yz.q"),
        ("a.*", "{{left(1,9)}}.{{right(1,0)}}", b"a.xyz", b"xyz.xyz"),
        ("*", "{{splitfromleft(1,2)}}.{{splitfromright(1,2)}}", b"abcde", b"ab.cde.abc.de"),
        ("*", "{{slicefromleft(1,2)}}", b"abcde", b"ab.cd.e"),
        ("*", "{{slicefromright(1,2)}}", b"abcde", b"a.bc.de"),
        ("*", "{{slicefromright(1,2)}}", b"abcd", b"ab.cd"),
        ("*", "{{split(1,-)}}", b"a-b--c-", b"a.b.c"),
        ("*", "{{split(1,-)}}", b"-a-b", b"a.b"),
        ("a.*", "{{partition(10)}}", b"a.x", b"6"),
        ("q.*.*", "{{partition(10)}}.{{partition(10,1,2)}}.{{partition(10,2)}}", b"q.foo.bar", b"3.0.2"),
        ("a", "{{partition(0)}}.{{random(0)}}", b"a", b"0.0"),
    ],
)
def test_a_subject_becomes_what_the_reference_makes_of_it(
    source: str, destination: str, subject: bytes, becomes: bytes | None
) -> None:
    assert made(source, destination, subject) == becomes


def test_a_drawn_number_is_below_its_bound() -> None:
    assert {made("a", "b.{{random(3)}}", b"a") for _ in range(3)} <= {b"b.0", b"b.1", b"b.2"}


def test_no_destination_is_no_transform() -> None:
    assert transform_between("a", "") is None
    with pytest.raises(TransformError, match=r"wildcard index out of range in \$1: \[1\]"):
        transform_between("a.>", "$1.>")
