"""The directory of a node: whose it is, and which servers may open it."""

from pathlib import Path

import orjson

from jetraft.store.format import FORMAT_VERSION
from jetraft.store.node_dir import NodeDir


def test_a_store_of_an_earlier_format_is_marked_before_anything_newer_is_in_it(tmp_path: Path) -> None:
    """An earlier server would take what this one writes for damage: it must refuse the directory instead."""
    NodeDir.open(tmp_path, server_name="n1", named=True, cluster="c").close()
    path = tmp_path / "node.json"
    first = orjson.loads(path.read_bytes())
    assert first["format"] == FORMAT_VERSION
    path.write_bytes(orjson.dumps(first | {"format": 1}))

    opened = NodeDir.open(tmp_path, server_name="n1", named=True, cluster="c")

    assert opened.node_id == first["node_id"]
    assert orjson.loads(path.read_bytes()) == first
    opened.close()
