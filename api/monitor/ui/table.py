"""Which paths there are below `/ui`."""

from jetraft.api.monitor.page import Handler
from jetraft.api.monitor.pages import Pages
from jetraft.api.monitor.ui.assets import asset_table
from jetraft.api.monitor.ui.lists import NoLists, list_table


def ui_table(pages: Pages) -> dict[str, Handler]:
    """Path -> handler of the page, its files and its lists."""
    lists = NoLists() if pages.jetstream is None else pages.jetstream.dashboard()
    return {**asset_table(), **list_table(lists)}
