from collections.abc import Sequence

OPENSSL: str

class ContextError(ValueError): ...

class TlsContext:
    def __init__(
        self,
        *,
        certificates: Sequence[tuple[Sequence[bytes], bytes]],
        authorities: Sequence[bytes],
        system_authorities: bool,
        verify: bool,
        tls13_only: bool,
        ciphers: bytes,
        groups: bytes,
        server_name: bytes | None = None,
        is_address: bool = False,
    ) -> None: ...

def offers_cipher(name: bytes) -> bool: ...
def offers_group(name: bytes) -> bool: ...
