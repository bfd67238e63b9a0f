"""The dashboard's own requests: what is more than a page."""

from collections.abc import Mapping

import attrs

from jetraft.api.monitor.asked import Answerer
from jetraft.api.monitor.ui.events import Events


@attrs.define(eq=False)
class DashboardSite:
    """See Site of api/monitor/asked.py."""

    events: Events
    answerers: Mapping[str, Answerer] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.answerers = {"/ui/events": self.events.open}

    async def run(self) -> None:
        """Serve until cancelled."""
        await self.events.run()
