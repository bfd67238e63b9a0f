"""`proxies { trusted: [ { key } ] }`: which proxies may speak for clients. Texts of errors are nats-server's."""

from jetraft.api.config.blocks import PlacedError, apply_all, put, spelled
from jetraft.api.config.gotypes import go_type
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import text
from jetraft.api.credentials.nkeys import PROXY_PREFIXES, public_key
from jetraft.store.model.gosyntax import go_quote


def proxies(settings: Settings, value: object) -> None:
    """The block."""
    if not isinstance(value, Table):
        raise OptionsError(f"expected proxies to be a map/struct, got {go_type(value)}")
    found: Settings = {}
    apply_all("proxies", value, {"trusted": put("trusted", trusted)}, found)
    settings["proxies"] = found.get("trusted", ())


def trusted(_key: str, value: object) -> tuple[str, ...]:
    """Their public keys."""
    if not isinstance(value, list):
        raise OptionsError(f"expected proxies' trusted field to be an array, got {go_type(value)}")
    found = []
    for item in value:
        if not isinstance(item, Table):
            raise OptionsError(f"expected proxies' trusted entry to be a map/struct, got {go_type(item)}")
        block: Settings = {}
        apply_all("proxies.trusted", item, spelled(put("key", text), "key", "public_key"), block)
        if "key" not in block:
            continue
        if public_key(block["key"], *PROXY_PREFIXES) is None:
            raise PlacedError(f"{item.place(next(iter(item)))}: invalid proxy key {go_quote(block['key'])}")
        found.append(block["key"])
    return tuple(found)
