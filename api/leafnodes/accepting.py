"""The greeting of a leaf node before that has said who it is: INFO, and how both compress."""

from collections.abc import Callable
from typing import Any

import attrs

from jetraft.api.leafnodes.handshake import HandshakeError, OwnNames, info_of
from jetraft.api.leafnodes.hubs import Ends
from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.leafnodes.packing import negotiate
from jetraft.api.options.compression import NOT_SUPPORTED, OFF, Compression, CompressionError
from jetraft.api.plane.reasons import Reason


@attrs.frozen(eq=False)
class AcceptedSide:
    """Greets leaf nodes. `about_listener`: what INFO says of the address; `own_wish`: what the configuration says."""

    identity: OwnNames
    ends: Ends
    about_listener: Callable[[], dict[str, Any]]
    own_wish: Callable[[], Compression]

    def info(self, link: LeafLink, compression: str) -> bytes:
        """INFO for a connection that was accepted."""
        return self.identity.info(self.about_listener(), {"client_id": link.cid, "nonce": link.nonce}, compression)

    def greeting(self, link: LeafLink) -> bytes:
        """The first one. Frames that WebSocket compresses are not compressed twice, as nats-server decides."""
        return self.info(link, "" if link.deflates else self.own_wish().mode)

    def on_choice(self, link: LeafLink, text: bytes) -> None:
        """A leaf node has chosen how to compress; once, before it says who it is."""
        if link.is_negotiated or link.deflates or link.peer is not None:
            return
        try:
            its = info_of(text).compression
            negotiate(self.ends.plane, link, self.own_wish(), its, lambda mode: self.info(link, mode))
        except HandshakeError as error:
            self.ends.fail(link, str(error))
        except CompressionError as error:
            self.ends.end(link, str(error), Reason.PROTOCOL_VIOLATION)

    @staticmethod
    def told(link: LeafLink, word: object) -> None:
        """The compression in CONNECT, where there was no choice."""
        if not link.is_negotiated:
            link.compression = OFF if word == OFF else NOT_SUPPORTED
