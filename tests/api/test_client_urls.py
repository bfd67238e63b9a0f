"""Which addresses a node believes another one to have."""

from typing import Any

import pytest

from jetraft.api.routes import URLS_MAX, client_urls
from jetraft.raft.mesh.peers import MeshPeer
from jetraft.store.model.ids import node_id_of


@pytest.mark.parametrize(
    ("metadata", "urls"),
    [
        ({"client_url": "a:1", "client_urls": ["a:1", "[::1]:1"]}, ("a:1", "[::1]:1")),
        ({"client_url": "a:1"}, ("a:1",)),
        ({"client_url": "", "client_urls": []}, ()),
        ({}, ()),
        ({"client_urls": "a:1"}, ()),
        ({"client_urls": ["a:1", 7, None, ""]}, ("a:1",)),
        ({"client_urls": ["a:1"] * (URLS_MAX + 1)}, ("a:1",) * URLS_MAX),
    ],
)
def test_a_node_has_the_addresses_that_it_named(metadata: dict[str, Any], urls: tuple[str, ...]) -> None:
    peer = MeshPeer(
        node_id=node_id_of("b"), name="b", up=True, session=1, address=None, last_seen_ns=0, metadata=metadata
    )
    assert client_urls(peer) == urls
