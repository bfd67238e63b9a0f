"""Which accounts have lost their hub, for `js_cluster_migrate`: an attempt has failed, and no connection is there.

A hub that is reached again within `leader_migrate_delay` was not lost.
"""

from collections.abc import Callable, Iterable
from typing import Final

import attrs
import trio

from jetraft.api.leafnodes.link import LeafLink
from jetraft.api.options.leafnodes import RemoteOptions, RemoteUrl
from jetraft.store.model.clock import Clock

RemoteKey = tuple[tuple[RemoteUrl, ...], str]  # `RemoteOptions.key`
LOOK_S: Final = 0.25


@attrs.define(eq=False, kw_only=True)
class LostHubs:
    """See the module. `tell` is called at every look, with the accounts."""

    clock: Clock
    remotes: Callable[[], Iterable[RemoteOptions]]
    links: Callable[[], Iterable[LeafLink]]
    tell: Callable[[frozenset[str]], None]
    _away_ns: dict[RemoteKey, int] = attrs.field(factory=dict)  # since when

    def failed(self, remote: RemoteOptions) -> None:
        """An attempt to reach a hub has failed, or a connection to it has ended."""
        self._away_ns.setdefault(remote.key, self.clock.mono_ns())

    def accounts(self) -> frozenset[str]:
        """Those that have lost their hub by now."""
        remotes = {remote.key: remote for remote in self.remotes() if remote.cluster_migrate}
        reached = {link.remote.key for link in self.links() if link.remote is not None and link.admitted}
        self._away_ns = {key: since for key, since in self._away_ns.items() if key in remotes and key not in reached}
        now_ns = self.clock.mono_ns()
        gone = (remotes[key] for key, since in self._away_ns.items() if now_ns - since >= remotes[key].migrate_delay_ns)
        return frozenset(remote.account for remote in gone)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.tell(self.accounts())
            await trio.sleep(LOOK_S)
