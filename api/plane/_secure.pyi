from typing import NamedTuple

from jetraft.api.plane._plane import Plane
from jetraft.api.tls._context import TlsContext
from jetraft.api.tls._handshakes import HandshakePool

WAIT: int
DETECT: int
HANDSHAKE: int
OPEN: int
PLAIN: int

class Judged(NamedTuple):
    cid: int
    complete: bool
    reason: int
    library_text: str
    verified: int
    errno: int
    ended: bool
    first_byte: int | None
    version: str
    cipher: str
    certificates: list[bytes]

class SecurePlane(Plane):
    def serve_tls(self, context: TlsContext, pool: HandshakePool) -> None: ...
    def start_tls(self, cid: int, phase: int, pool: HandshakePool) -> None: ...
    def connect_tls(self, cid: int, context: TlsContext, pool: HandshakePool) -> None: ...
    def tls_phase(self, cid: int) -> int | None: ...
    def go_on(self, cid: int, phase: int) -> bool: ...
    def judged(self, pool: HandshakePool) -> list[Judged]: ...
    def admit(self, cid: int) -> None: ...
