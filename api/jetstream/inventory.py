"""Which accounts, streams and consumers there are, as this node knows it, for `/healthz`."""

from collections.abc import Collection

import attrs

from jetraft.cluster.node import ClusterNode
from jetraft.cluster.state.assignment import StreamKey


@attrs.frozen(eq=False)
class NodeInventory:
    """Implements monitor.health.Inventory."""

    node: ClusterNode
    accounts: Collection[str]  # that have JetStream

    def has_account(self, account: str) -> bool:
        """See Inventory."""
        return account in self.accounts

    def has_stream(self, account: str, stream: str) -> bool:
        """See Inventory."""
        return StreamKey(account, stream) in self.node.machine.table.streams

    def has_consumer(self, account: str, stream: str, consumer: str) -> bool | None:
        """See Inventory."""
        key = StreamKey(account, stream)
        found = [replica for row, replica in self.node.directory.replicas() if row.key == key]
        return consumer in found[0].consumer_names() if found else None
