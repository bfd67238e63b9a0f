import attrs
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetraft.raft.mesh.addresses import Address
from jetraft.raft.mesh.errors import RemoteProtocolError
from jetraft.raft.mesh.gossip import ADDRESSES_MAX, About
from jetraft.store.model.ids import node_id_of

WORD = {"metadata": {"client_url": "nats://x"}, "address": "h:6222", "peers": {node_id_of("b"): "g:6223"}}


def test_what_a_node_says_survives() -> None:
    about = About(metadata={"a": 1}, address=Address("h", 1), peers={node_id_of("b"): Address("::1", 2)})
    assert About.decode(about.encode(), "elsewhere") == about
    assert About.decode(attrs.evolve(about, links=(node_id_of("b"),)).encode(), "x").links == (node_id_of("b"),)
    silent = About(metadata={}, address=None, peers={})
    assert About.decode(silent.encode(), "elsewhere") == silent


def test_a_node_that_listens_everywhere_is_where_its_connection_came_from() -> None:
    about = About.decode(msgpack.packb({**WORD, "address": "0.0.0.0:6222"}), "10.0.0.1")
    assert about.address == Address("10.0.0.1", 6222)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": 3},
        {"peers": []},
        {"peers": {"short": "h:1"}},
        {"peers": {node_id_of("b"): 7}},
        {"peers": {node_id_of("b"): "h:99999"}},
        {"peers": {node_id_of(str(number)): "h:1" for number in range(ADDRESSES_MAX + 1)}},
        {"address": "http://h"},
        {"address": ["h", 1]},
        {"metadata": {7: 8}},
        {"links": {}},
        {"links": ["short"]},
        {"links": [node_id_of("b")] * (ADDRESSES_MAX + 1)},
    ],
    ids=str,
)
def test_a_wrong_word_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(RemoteProtocolError):
        About.decode(msgpack.packb({**WORD, **change}), "h")


values = st.sampled_from([None, True, -1, 2**64 - 1, "", "h", "h:1", "[::", b"h:1", [], ["h:1"], {}, {"b" * 8: "h:-1"}])


@given(st.binary(max_size=100) | st.fixed_dictionaries(dict.fromkeys(WORD, values)).map(msgpack.packb))
def test_garbage_raises_one_exception_only(data: bytes) -> None:
    try:
        About.decode(data, "h")
    except RemoteProtocolError:
        return
