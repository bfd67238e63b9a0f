"""Which servers a request is for: the fields that every request to `PING` may have. Pure."""

from collections.abc import Collection

import attrs

from jetraft.store.model.encoding.fields import FLAG, TEXT, ListOf, wire

TEXTS = ListOf(TEXT, "[]string")


@attrs.frozen(kw_only=True, slots=True)
class ServerFilter:
    """A server answers if all of it applies. Without `exact_match` a part of a name is enough."""

    server_name: str = wire(TEXT, "")
    cluster: str = wire(TEXT, "")
    host: str = wire(TEXT, "")
    exact_match: bool = wire(FLAG, False)  # noqa: FBT003  (the default)
    tags: tuple[str, ...] = wire(TEXTS, ())
    domain: str = wire(TEXT, "")

    def admits(self, *, name: str, cluster: str, host: str, tags: Collection[str], domain: str = "") -> bool:
        """Whether this server is meant."""
        own = {tag.lower() for tag in tags}
        pairs = ((self.server_name, name), (self.cluster, cluster), (self.host, host))
        named = all(wanted == mine if self.exact_match else wanted in mine for wanted, mine in pairs if wanted)
        return named and self.domain in ("", domain) and all(tag.lower() in own for tag in self.tags)
