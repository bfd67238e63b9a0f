from collections.abc import Sequence

class UserPermissions:
    def __init__(
        self,
        *,
        publish_allow: Sequence[tuple[bytes, bytes]] | None,
        publish_deny: Sequence[tuple[bytes, bytes]] | None,
        subscribe_allow: Sequence[tuple[bytes, bytes]] | None,
        subscribe_deny: Sequence[tuple[bytes, bytes]] | None,
        answers: tuple[int, int] | None = None,
    ) -> None: ...
