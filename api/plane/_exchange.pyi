from collections.abc import Sequence

from jetraft.api.plane._accounts import Account
from jetraft.api.plane._leafs import Leafs
from jetraft.store.model.transforms import Transform

class Exchange(Leafs):
    def export_service(self, *, many: bool, threshold_ns: int) -> int: ...
    def change_service(self, number: int, *, many: bool, threshold_ns: int) -> None: ...
    def end_service(self, number: int) -> None: ...
    def import_service(
        self,
        account: Account,
        subject: bytes,
        exporter: Account,
        export: int,
        *,
        to: Transform | None,
        share: bool = False,
    ) -> int: ...
    def import_stream(
        self,
        account: Account,
        subject: bytes,
        exporter: Account,
        source: bytes,
        *,
        shown: Transform | None,
        back: Transform | None,
    ) -> int: ...
    def end_import(self, account: Account, number: int) -> None: ...
    def map_subject(self, account: Account, source: bytes, choices: Sequence[tuple[int, Transform]]) -> None: ...
    def unmap(self, account: Account) -> None: ...
    def limit(
        self, account: Account, *, max_connections: int = -1, max_subscriptions: int = -1, max_payload: int = -1
    ) -> None: ...
