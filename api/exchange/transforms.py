"""The effect of an import or a mapping on subjects. Texts of errors are nats-server's.

Pure.
"""

from collections import Counter

import attrs

from jetraft.api.exchange.values import Import, Mapping, SharingKind
from jetraft.store.model.gosyntax import go_quote
from jetraft.store.model.mapping.transforms import (
    Transform,
    TransformError,
    check_destination,
    constant,
    parse_transform,
    reverse,
    with_references,
    with_wildcards,
)
from jetraft.store.model.subject import is_literal

WHOLE = 100  # percent

Choices = tuple[tuple[int, Transform], ...]


@attrs.frozen(kw_only=True, slots=True)
class Names:
    """An import: its subject in the importing account, and what leads from one subject to the other.

    Of a service `there` leads to the exporter's subjects, of a stream `here` to the importer's as well; None: they are
    the same.
    """

    local: bytes
    there: Transform | None = None
    here: Transform | None = None


def names_of(imported: Import) -> Names:
    """The names of an import. Raises TransformError with the text of the whole error."""
    read = service_names if imported.kind is SharingKind.SERVICE else stream_names
    return read(imported.subject.encode(), local_of(imported).encode())


def local_of(imported: Import) -> str:
    """The subject of an import in its account."""
    if not imported.prefix:
        return imported.local or imported.subject
    return f"{imported.prefix}{'' if imported.prefix.endswith('.') else '.'}{imported.subject}"


def service_names(subject: bytes, local: bytes) -> Names:
    """Those of a service, whose requests are published on the importer's subject."""
    if subject == local:
        return Names(local=local)
    if is_literal(subject):
        return Names(local=local, there=constant(local, subject))
    source = with_wildcards(subject)
    here = _of_import(SharingKind.SERVICE, source, with_references(local), local, subject)
    return Names(local=with_wildcards(local), there=reverse(here))


def stream_names(subject: bytes, local: bytes) -> Names:
    """Those of a stream, whose messages are published on the exporter's subject."""
    if subject == local:
        return Names(local=local)
    if is_literal(subject):
        return Names(local=local, there=constant(local, subject), here=constant(subject, local))
    here = _of_import(SharingKind.STREAM, subject, with_references(local), subject, local)
    return Names(local=with_wildcards(local), there=reverse(here), here=here)


def _of_import(kind: SharingKind, source: bytes, destination: bytes, given: bytes, wanted: bytes) -> Transform:
    try:
        return parse_transform(source, destination, is_import=True)
    except TransformError as error:
        between = f"from {go_quote(given.decode())} to {go_quote(wanted.decode())}"
        raise TransformError(
            f"failed to create mapping transform for {kind} import subject {between}: {error}"
        ) from error


def choices_of(mapping: Mapping, cluster: str) -> Choices:
    """The weights and transforms of a mapping in a cluster; the rest of 100 percent stays. Raises TransformError."""
    source = mapping.source.encode()
    seen: set[str] = set()
    weights: Counter[str] = Counter()
    scoped: dict[str, list[tuple[int, Transform]]] = {}
    for one in mapping.destinations:
        if one.subject in seen:
            raise TransformError(f"duplicate entry for {go_quote(one.subject)}")
        seen.add(one.subject)
        weights[one.cluster] += one.weight
        if weights[one.cluster] > WHOLE:
            raise TransformError("total weight needs to be <= 100")
        destination = one.subject.encode()
        check_destination(destination)
        scoped.setdefault(one.cluster, []).append((one.weight, parse_transform(source, destination)))
    found = scoped.get(cluster, scoped.get("", [])) if cluster else scoped.get("", [])
    rest = WHOLE - sum(weight for weight, _ in found)
    if rest and mapping.source not in seen:
        found = [*found, (rest, parse_transform(source, with_references(source)))]
    return tuple(found)
