"""Subject transforms: what is refused, and the way back of those of imports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.store.model.mapping.transforms import (
    PieceKind,
    TransformError,
    TransformPiece,
    check_destination,
    parse_transform,
    reverse,
    with_references,
    with_wildcards,
)


def test_functions_and_references_name_positions_of_the_source() -> None:
    found = parse_transform(b"a.*.b.*.>", b"x.$2.{{ Partition(5, 1,2) }}.{{split(1,-)}}.{{right(2, 3)}}.$x.>")
    assert found.pieces == (
        TransformPiece(text=b"x"),
        TransformPiece(kind=PieceKind.WILDCARD, text=b"$2", sources=(3,)),
        TransformPiece(kind=PieceKind.PARTITION, text=b"{{ Partition(5, 1,2) }}", number=5, sources=(1, 3)),
        TransformPiece(kind=PieceKind.SPLIT, text=b"-", sources=(1,)),
        TransformPiece(kind=PieceKind.RIGHT, text=b"{{right(2, 3)}}", number=3, sources=(3,)),
        TransformPiece(text=b"$x"),
    )
    assert found.tail == 4


@pytest.mark.parametrize(
    ("source", "destination", "error"),
    [
        (b"a.*", b"b.*", "invalid subject"),
        (b"a.>", b"b", "invalid subject"),
        (b"a", b"b.>", "invalid subject"),
        (b"a..b", b"b", "invalid subject"),
        (b"a", b"b.>.c", "invalid subject"),
        (b"a", b"$1", "wildcard index out of range in $1"),
        (b"a.*", b"$2", "wildcard index out of range in $2: [2]"),
        (b"a.>", b"{{left(1,1)}}.>", "wildcard index out of range"),
        (b"a.*", b"{{split(1)}}", "not enough arguments"),
        (b"a.*", b"{{split(1,a b)}}", "function argument is invalid"),
        (b"a.*", b"{{left(1,2,3)}}", "too many arguments"),
        (b"a.*", b"{{left(1,99999999999)}}", "function argument is invalid"),
        (b"a.*", b"{{random(x)}}", "function argument is invalid"),
        (b"a.*", b"{{wildcard 1}}", "unknown function"),
    ],
)
def test_wrong_transforms_are_refused(source: bytes, destination: bytes, error: str) -> None:
    with pytest.raises(TransformError) as caught:
        parse_transform(source, destination)
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("source", "destination", "error"),
    [
        (b"a.*", b"b", "not using all of the token wildcard(s) in b"),
        (b"a.*.*", b"b.$1.$1", "not using all of the token wildcard(s) in b.$1.$1"),
        (b"a.*", b"b.{{partition(1,1)}}", "the only mapping function allowed for import transforms is {{Wildcard()}}"),
    ],
)
def test_imports_have_to_be_reversible(source: bytes, destination: bytes, error: str) -> None:
    parse_transform(source, destination)
    with pytest.raises(TransformError) as caught:
        parse_transform(source, destination, is_import=True)
    assert error in str(caught.value)


@pytest.mark.parametrize("destination", [b"", b"a..b", b"a b", b"a\t", b"{{nothing(1)}}"])
def test_what_is_no_destination_is_refused(destination: bytes) -> None:
    with pytest.raises(TransformError, match="invalid mapping destination"):
        check_destination(destination)


@given(st.permutations([1, 2, 3, 4]), st.booleans())
def test_the_way_back_leads_back(order: list[int], tail: bool) -> None:  # noqa: FBT001  (drawn)
    end = b".>" if tail else b""
    there = parse_transform(b"s.*.*.x.*.*" + end, b".".join(b"$%d" % number for number in order) + end, is_import=True)
    back = reverse(there)
    assert back.source == b"*.*.*.*" + end
    rest = [b"t", b"u"] if tail else []
    given = [b"s", b"1", b"2", b"x", b"3", b"4", *rest]
    middle = [given[piece.sources[0]] for piece in there.pieces] + rest
    again = [middle[piece.sources[0]] if piece.sources else piece.text for piece in back.pieces] + rest
    assert again == given


def test_wildcards_and_references_stand_for_each_other() -> None:
    assert with_references(b"a.*.b.*.>") == b"a.$1.b.$2.>"
    assert with_wildcards(b"a.$1.{{wildcard(2)}}.$x.{{partition(1,1)}}") == b"a.*.*.$x.{{partition(1,1)}}"
