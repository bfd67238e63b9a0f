"""How this server is described in answers and events. Names and order are nats-server's."""

from collections.abc import Callable
from typing import Any, Final

import attrs

from jetraft.api.options.feature_flags import flags_in_force
from jetraft.api.sessions.session import ServerIdentity, Sessions
from jetraft.store.model.clock import Clock
from jetraft.store.model.gotime import format_time
from jetraft.store.model.versioning import SERVER_VERSION

JETSTREAM_FLAG: Final = 1  # of "flags"; nats-server's others are of features that this server does not have


@attrs.define(kw_only=True, eq=False)
class ServerHead:
    """Describes this server. Each answer and event has the next number."""

    identity: ServerIdentity
    sessions: Sessions
    clock: Clock
    has_jetstream: bool
    name_of: Callable[[str], str]  # of an account, for people
    _seq: int = 0

    @property
    def domain(self) -> str:
        """The domain of JetStream."""
        return self.identity.domain

    def next(self) -> dict[str, Any]:
        """The server, as the next answer or event says it."""
        self._seq += 1
        options, identity = self.sessions.options, self.identity
        return {
            "name": identity.server_name,
            "host": options.host,
            "id": identity.server_id,
            **({"cluster": identity.cluster_name} if identity.cluster_name else {}),
            **({"domain": self.domain} if self.domain else {}),
            "ver": SERVER_VERSION,
            **({"tags": list(options.server_tags)} if options.server_tags else {}),
            **({"metadata": dict(options.server_metadata)} if options.server_metadata else {}),
            "feature_flags": flags_in_force(options.feature_flags),
            "jetstream": self.has_jetstream,
            "flags": JETSTREAM_FLAG if self.has_jetstream else 0,
            "seq": self._seq,
            "time": format_time(self.clock.unix_ns()),
        }

    def short(self) -> dict[str, Any]:
        """The answer to IDZ."""
        return {
            "name": self.identity.server_name,
            "host": self.sessions.options.host,
            "id": self.identity.server_id,
        }
