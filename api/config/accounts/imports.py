"""`imports` of an account. Keys and texts of errors are nats-server's."""

from jetraft.api.config.accounts.exports import check_order
from jetraft.api.config.blocks import Apply, PlacedError, apply_all, put, refuse
from jetraft.api.config.gotypes import flag, go_type, items, word
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.exchange.values import Import, SharingKind
from jetraft.store.model.gosyntax import go_quote


def imports(_key: str, value: object) -> tuple[Import, ...]:
    """The imports of an account."""
    found: list[Import] = []
    services: dict[str, Import] = {}
    for item in items("Import", value):
        one = import_of(item)
        if one is None:
            continue
        local = one.local or one.subject
        before = services.get(local)
        if one.kind is SharingKind.SERVICE:
            if before is not None:
                place = item.place(next(iter(item)))
                raise PlacedError(
                    f"{place}: Duplicate service import subject {go_quote(local)}, previously used in import for "
                    f"account {go_quote(before.account)}, subject {go_quote(before.subject)}"
                )
            services[local] = one
        found.append(one)
    return tuple(found)


def import_of(block: Table) -> Import | None:
    """One import; None for an empty one, which nats-server takes."""
    found: Settings = {}
    keys: dict[str, Apply] = {
        "stream": put("stream", import_source),
        "service": put("service", import_source),
        "prefix": put("prefix", word),
        "to": put("local", word),
        "share": put("share", flag),
        "allow_trace": put("allow_trace", flag),
    }
    seen: set[str] = set()
    for key, given in block.given(keys):
        try:
            check_order("Detected {0} but already saw a {2}", key, given, seen)
            seen.add(key.lower())
            if key.lower() not in keys:
                refuse("accounts.imports", key, found, given)
            keys[key.lower()](found, given)
            check_import(found, key.lower(), seen)
        except PlacedError:
            raise
        except OptionsError as error:
            raise PlacedError(f"{block.place(key)}: {error}") from error
    for kind in SharingKind:
        if kind in found:
            account, subject = found.pop(kind)
            return Import(kind=kind, account=account, subject=subject, **found)
    return None


def check_import(found: Settings, key: str, seen: set[str]) -> None:
    """Raise OptionsError for a key that does not go with those before it."""
    if "stream" in found and key in ("to", "prefix") and {"to", "prefix"} <= seen:
        raise OptionsError("Stream import can not have a 'prefix' and a 'to' property")
    if "service" in found and key == "allow_trace":
        raise OptionsError("Detected allow_trace directive on a non-stream")


def import_source(key: str, value: object) -> tuple[str, str]:
    """`{account, subject}`."""
    if not isinstance(value, Table):
        raise OptionsError(f"{key.capitalize()} entry should be an account map, got {go_type(value)}")
    found: Settings = {}
    apply_all(
        f"accounts.imports.{key}", value, {"account": put("account", word), "subject": put("subject", word)}, found
    )
    if not found.get("account") or not found.get("subject"):
        raise OptionsError("Expect an account name and a subject")
    return found["account"], found["subject"]
