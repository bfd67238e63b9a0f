"""Listeners whose certificates a reload reads again: their files may have changed under the same names.

All are read before anything changes, because a file may be wrong; those who are connected keep theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs

from jetraft.api.options.tls import TlsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetraft.api.listeners.listener import ClientListener, ListenerParts
    from jetraft.api.options.options import Options
    from jetraft.api.options.tls import TlsOptions
    from jetraft.api.tls.clients import TlsClients


class Certificates(Protocol):
    """Those of a listener."""

    def read(self, new: Options) -> Callable[[], None] | None:
        """Read the files; returns what lets others see them from then on. Raises TlsError."""


@attrs.frozen(eq=False)
class ClientCertificates:
    """A listener whose handshakes the plane does. `options_of` is its block."""

    clients: TlsClients
    options_of: Callable[[Options], TlsOptions | None]

    def read(self, new: Options) -> Callable[[], None] | None:
        """Read the files; returns what lets the next clients see them. Raises TlsError."""
        options = self.options_of(new)
        if options is None:
            return None
        from jetraft.api.tls.material import load  # noqa: PLC0415  only servers with TLS pay for the libraries

        material = load(options)
        return lambda: self.clients.follow(options, material)


@attrs.define(eq=False)
class ClientTls:
    """The listener for clients, which speaks TLS or does not, as the configuration says now."""

    listener: ClientListener
    parts: ListenerParts
    clients: TlsClients | None

    def read(self, new: Options) -> Callable[[], None] | None:
        """Read the files; returns what turns TLS on or off for the next clients. Raises TlsError."""
        options = new.tls
        if options is None:
            return self._turn_off
        from jetraft.api.listeners.assembly import serve_clients  # noqa: PLC0415  as above
        from jetraft.api.tls.material import load  # noqa: PLC0415  as above

        material = load(options)

        def take() -> None:
            if self.clients is None:
                self.clients = serve_clients(options, self.parts, material)
            self.clients.follow(options, material)
            self.listener.tls = self.clients

        return take

    def _turn_off(self) -> None:
        self.listener.tls = None


@attrs.frozen(eq=False)
class PageCertificates:
    """The monitoring pages over HTTPS."""

    monitor: Any  # MonitorServer: tls

    def read(self, new: Options) -> Callable[[], None] | None:
        """As above."""
        if new.tls is None:
            return None
        from jetraft.api.tls.monitoring import context_of  # noqa: PLC0415  as above

        context, monitor = context_of(new.tls), self.monitor

        def take() -> None:
            monitor.tls = context

        return take


@attrs.frozen(eq=False)
class MeshCertificates:
    """The links between nodes, in both roles."""

    tls: Any  # raft.mesh.connection.Tls

    def read(self, new: Options) -> Callable[[], None] | None:
        """As above."""
        if new.cluster is None or new.cluster.tls is None:
            return None
        from jetraft.raft.mesh.connection import Tls, TlsFiles, TlsFilesError  # noqa: PLC0415  as above

        try:
            read = Tls.load(TlsFiles(**attrs.asdict(new.cluster.tls)))
        except TlsFilesError as error:
            raise TlsError(str(error)) from error
        return lambda: self.tls.follow(read)
