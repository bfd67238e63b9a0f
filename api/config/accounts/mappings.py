"""`mappings` and `limits` of an account. Keys and texts of errors are nats-server's."""

from jetraft.api.config.blocks import Apply, PlacedError, apply_all, put, spelled
from jetraft.api.config.gotypes import number, word, wrong_type
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError, Settings
from jetraft.api.exchange.transforms import choices_of
from jetraft.api.exchange.values import ClientLimits, Destination, Mapping
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.mapping.transforms import TransformError
from jetraft.store.model.subject import valid_subject

WEIGHT_MAX = 100


def mappings(_key: str, value: object) -> tuple[Mapping, ...]:
    """The mappings of an account, in the order in which they are tried."""
    if not isinstance(value, Table):
        raise wrong_type(value, "map[string]interface {}")
    return tuple(mapping(value, source) for source in value)


def mapping(block: Table, source: str) -> Mapping:
    """One mapping: to a subject, to one with a weight, or to a list of these."""
    given = block[source]
    if not valid_subject(source.encode()):
        raise OptionsError(f"Subject {go_quote(source)} is not a valid subject")
    try:
        if isinstance(given, str):
            found = Mapping(source=source, destinations=(Destination(subject=given),))
        else:
            chosen = given if isinstance(given, list) else [given]
            found = Mapping(source=source, destinations=tuple(map(destination, chosen)))
        for cluster in {one.cluster for one in found.destinations}:
            choices_of(found, cluster)
    except TransformError as error:
        to = f"to {go_quote(given)} " if isinstance(given, str) else ""
        text = f"Error adding mapping for {go_quote(source)} {to}: {error}"
        raise PlacedError(f"{block.place(source)}: {text}") from error
    except PlacedError:
        raise
    except OptionsError as error:
        raise PlacedError(f"{block.place(source)}: {error}") from error
    return found


def destination(value: object) -> Destination:
    """`{destination, weight, cluster}`."""
    if not isinstance(value, Table):
        raise OptionsError("Expected an entry for the mapping destination")
    found: Settings = {"subject": ""}
    keys: dict[str, Apply] = {
        **spelled(put("subject", word), "dest", "destination"),
        "weight": put("weight", weight),
        "cluster": put("cluster", word),
    }
    for key in value:
        if key.lower() not in keys:
            raise PlacedError(f"{value.place(key)}: Unknown field {go_quote(key)} for mapping destination")
    apply_all("accounts.mappings", value, keys, found)
    if "weight" not in found:
        raise OptionsError(f"Missing weight for mapping destination {go_quote(found['subject'])}")
    return Destination(**found)


def weight(_key: str, value: object) -> int:
    """A part of a hundred, as a number or with a percent sign."""
    given = value.removesuffix("%") if isinstance(value, str) else value
    if isinstance(given, str):
        try:
            return weight("", int(given))
        except ValueError as error:
            if isinstance(error, OptionsError):
                raise
            raise OptionsError(f"Invalid weight {go_quote(given)} for mapping destination") from error
    if not isinstance(given, int) or isinstance(given, bool):
        raise OptionsError(f"Unknown entry type for weight of {given}")
    if not 0 <= given <= WEIGHT_MAX:
        raise OptionsError(f"Invalid weight {given} for mapping destination")
    return given


def limits(_key: str, value: object) -> ClientLimits:
    """Limits of an account and its connections."""
    if not isinstance(value, Table):
        raise OptionsError(f"Expected account limits to be a map/struct, got {value}")
    found: Settings = {}
    keys: dict[str, Apply] = {
        **spelled(put("max_connections", number), "max_connections", "max_conn"),
        **spelled(put("max_subscriptions", number), "max_subscriptions", "max_subs"),
        **spelled(put("max_payload", number), "max_payload", "max_pay"),
        **spelled(put("max_leafnodes", number), "max_leafnodes", "max_leafs"),
    }
    for key, _ in value.given(keys):
        if key.lower() not in keys:
            raise PlacedError(f"{value.place(key)}: Unknown field {go_quote(key)} parsing account limits")
    apply_all("accounts.limits", value, keys, found)
    return ClientLimits(**found)
