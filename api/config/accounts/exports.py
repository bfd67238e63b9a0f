"""`exports` of an account. Keys and texts of errors are nats-server's."""

from collections.abc import Mapping

from jetraft.api.config.accounts.latency import latency
from jetraft.api.config.blocks import Apply, PlacedError, put, refuse, spelled
from jetraft.api.config.gotypes import flag, go_type, items, number, word, wrong_type
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.config.values import duration_ns
from jetraft.api.exchange.values import RESPONSE_THRESHOLD_NS, Export, ServiceResponseType, SharingKind
from jetraft.store.model.gosyntax import go_quote

RESPONSE_TYPES = {
    "single": ServiceResponseType.SINGLE,
    "singleton": ServiceResponseType.SINGLE,
    "stream": ServiceResponseType.STREAM,
    "chunk": ServiceResponseType.CHUNKED,
    "chunked": ServiceResponseType.CHUNKED,
}
RESPONSE_KEYS = frozenset({"response", "response_type"})
THRESHOLD_KEYS = frozenset({"threshold", "response_threshold", "response_max_time", "response_time"})


def exports(_key: str, value: object) -> tuple[Export, ...]:
    """The exports of an account."""
    return tuple(found for item in items("Export", value) if (found := export(item)) is not None)


def export(block: Table) -> Export | None:
    """One export; None for an empty one, which nats-server takes."""
    found: Settings = {}
    keys: dict[str, Apply] = {
        "stream": put("stream", export_name),
        "service": put("service", export_name),
        **spelled(put("response_type", response_type), *RESPONSE_KEYS),
        **spelled(put("threshold_ns", threshold), *THRESHOLD_KEYS),
        "accounts": put("accounts", names),
        "latency": put("latency", latency),
        "account_token_position": put("token_position", number),
        "allow_trace": put("allow_trace", flag),
    }
    seen: set[str] = set()
    for key, given in block.given(keys):
        try:
            check_order("Detected {0} {1} but already saw a {2}", key, given, seen)
            check_once(key, seen)
            seen.add(key.lower())
            apply_export(keys, key, given, found)
        except PlacedError:
            raise
        except OptionsError as error:
            raise PlacedError(f"{block.place(key)}: {error}") from error
    check_directives(block, seen)
    for kind in SharingKind:
        if kind in found:
            subject = found.pop(kind)
            return Export(kind=kind, subject=subject, **found)
    return None


def apply_export(keys: Mapping[str, Apply], key: str, value: object, found: Settings) -> None:
    """Apply one key of an export."""
    if key.lower() not in keys:
        refuse("accounts.exports", key, found, value)
    keys[key.lower()](found, value)


def check_once(key: str, seen: set[str]) -> None:
    """Raise OptionsError for a directive that was given under another name."""
    for keys, text in (
        (RESPONSE_KEYS, "Duplicate response type definition"),
        (THRESHOLD_KEYS, "Duplicate response threshold detected"),
    ):
        if key.lower() in keys and seen & keys:
            raise OptionsError(text)


def check_directives(block: Table, seen: set[str]) -> None:
    """Raise PlacedError for a directive of services in the export of a stream."""
    if "stream" not in seen:
        return
    for key in block:
        if key.lower() in RESPONSE_KEYS | THRESHOLD_KEYS:
            raise PlacedError(f"{block.place(key)}: Detected response directive on non-service")
        if key.lower() in {"allow_trace", "latency"}:
            raise PlacedError(f"{block.place(key)}: Detected {key.lower()} directive on non-service")


def export_name(key: str, value: object) -> str:
    """The subject of an export."""
    if not isinstance(value, str):
        raise OptionsError(f"Expected {key} name to be string, got {go_type(value)}")
    return value


def names(_key: str, value: object) -> tuple[str, ...]:
    """The accounts that may import something."""
    if not isinstance(value, list):
        raise wrong_type(value, "[]interface {}")
    return tuple(word("", item) for item in value)


def response_type(_key: str, value: object) -> ServiceResponseType:
    """How many answers a request has."""
    if not isinstance(value, str):
        raise OptionsError(f"Expected response type to be string, got {go_type(value)}")
    if value.lower() not in RESPONSE_TYPES:
        raise OptionsError(f"Unknown response type: {go_quote(value)}")
    return RESPONSE_TYPES[value.lower()]


def threshold(_key: str, value: object) -> int:
    """How long an answer may take; 0 is the default."""
    text = "Expected response threshold to be a parseable time duration, got "
    if not isinstance(value, str):
        raise OptionsError(text + go_type(value))
    try:
        return duration_ns("", value) or RESPONSE_THRESHOLD_NS
    except OptionsError as error:
        raise OptionsError(text + go_quote(value)) from error


def check_order(text: str, key: str, given: object, seen: set[str]) -> None:
    """Raise OptionsError where both a stream and a service are named."""
    kinds: set[str] = set(SharingKind)
    other = (kinds - {key.lower()}) & seen
    if key.lower() in kinds and other:
        shown = go_quote(given) if isinstance(given, str) else go_type(given)
        raise OptionsError(text.format(key.lower(), shown, other.pop()))
