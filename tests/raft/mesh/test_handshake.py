import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.handshake import (
    CHALLENGE_BYTES,
    HELLO_BYTES,
    HandshakeRefusedError,
    Hello,
    Side,
    check_hello,
    cluster_key,
    proof,
    proven_key,
)
from jetraft.store.model.ids import node_id_of

ONE = Hello(cluster="c", node_id=node_id_of("one"), name="one", boot=1, session=3, challenge=b"\x01" * CHALLENGE_BYTES)
TWO = attrs.evolve(ONE, node_id=node_id_of("two"), name="two", boot=2, challenge=b"\x02" * CHALLENGE_BYTES)
KEY = cluster_key(b"secret", "c")


def test_a_hello_has_one_size_and_survives() -> None:
    long = attrs.evolve(ONE, name="ü" * 200)
    assert len(ONE.encode()) == len(long.encode()) == HELLO_BYTES
    assert Hello.decode(ONE.encode()) == ONE
    assert Hello.decode(long.encode()).name == "ü" * 64


@given(st.binary(min_size=HELLO_BYTES, max_size=HELLO_BYTES))
def test_garbage_is_no_hello(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        Hello.decode(data)


@pytest.mark.parametrize(
    ("at", "field", "why"),
    [(10, b"\x02", "purpose 2"), (12, b"\n", "id"), (20, b"\xff", "UTF-8"), (148, b"\x1b", "cannot be printed")],
    ids=["purpose", "id", "cluster", "name"],
)
def test_a_hello_with_one_wrong_field_is_refused_for_it(at: int, field: bytes, why: str) -> None:
    data = bytearray(ONE.encode())
    data[at : at + 1] = field
    with pytest.raises(RemoteProtocolError, match=why):
        Hello.decode(bytes(data))


def test_the_id_of_a_name_that_was_cut_is_not_judged() -> None:
    long = "ü" * 100
    check_hello(ONE, attrs.evolve(TWO, name="ü" * 64, node_id=node_id_of(long)))


def test_another_version_is_refused() -> None:
    data = bytearray(ONE.encode())
    data[8] = 99
    with pytest.raises(RemoteProtocolError, match="version 99"):
        Hello.decode(bytes(data))


@pytest.mark.parametrize(
    ("other", "reason", "is_self"),
    [
        (attrs.evolve(TWO, cluster="d"), "cluster 'd'", False),
        (attrs.evolve(ONE, boot=2), "names must differ", False),
        (attrs.evolve(TWO, node_id=ONE.node_id), "not the id of a node with the name 'two'", False),
        (ONE, "itself", True),
    ],
)
def test_who_may_not_join(other: Hello, reason: str, is_self: bool) -> None:  # noqa: FBT001  (a column)
    with pytest.raises(HandshakeRefusedError, match=reason) as refused:
        check_hello(ONE, other)
    assert refused.value.is_self is is_self


def test_a_proof_fits_its_side_its_hellos_and_its_key_only() -> None:
    """No reflection, no replay, no guess."""
    one, two = ONE.encode(), TWO.encode()
    given_proof = proof(KEY, Side.DIALER, one, two)
    assert proven_key([b"another", KEY], Side.DIALER, one, two, given_proof) == KEY
    fresh = attrs.evolve(TWO, challenge=b"\x03" * CHALLENGE_BYTES).encode()
    for key, side, dialer, acceptor in [
        (KEY, Side.ACCEPTOR, one, two),
        (KEY, Side.DIALER, two, one),
        (KEY, Side.DIALER, one, fresh),
        (cluster_key(b"other", "c"), Side.DIALER, one, two),
        (cluster_key(b"", "c"), Side.DIALER, one, two),
    ]:
        with pytest.raises(HandshakeRefusedError):
            proven_key([key], side, dialer, acceptor, given_proof)


def test_without_a_secret_the_cluster_name_is_the_key() -> None:
    assert cluster_key(b"", "c") != cluster_key(b"", "d")
    assert cluster_key(b"s", "c") == cluster_key(b"s", "d")
