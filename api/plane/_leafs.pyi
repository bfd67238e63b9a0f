from jetraft.api.plane._permissions import UserPermissions
from jetraft.api.plane._sinks import Sinks

class Leafs(Sinks):
    def set_domain(self, domain: bytes) -> None: ...
    def open_leaf(self, fd: int, *, solicited: bool) -> int: ...
    def become_leaf(self, cid: int, *, solicited: bool) -> None: ...
    def hold(self, cid: int) -> None: ...
    def read_on(self, cid: int) -> None: ...
    def admit_leaf(
        self,
        cid: int,
        *,
        account: str,
        cluster: bytes,
        spoke: bool,
        isolated: bool,
        headers: bool,
        permissions: UserPermissions | None,
    ) -> bool: ...
