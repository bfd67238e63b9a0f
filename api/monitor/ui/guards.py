"""Which requests a browser may send to the dashboard, and on whose behalf. Pure.

A page of another site can make a browser send requests here. None of them can act: one that acts has a header that
other sites cannot set without being asked (CORS, which is never granted), an Origin that is the Host, and a cookie that
browsers send to requests of this site alone. A page whose own name leads to this address (DNS rebinding) is of the same
site for a browser, but knows no login; so without a login the Host is an address or localhost, as in the HTTP gateway.
"""

from urllib.parse import urlsplit

from jetraft.api.http_gateway.requests import is_own_host
from jetraft.api.monitor.web_request import WebRequest

MARK = "x-jetraft-dashboard"  # the header of requests that act
OF_PROXIES = ("forwarded", "x-forwarded-for", "x-real-ip", "via")  # a proxy of this machine says that it hands on
SAME_SITE = frozenset(("", "none", "same-origin"))  # of Sec-Fetch-Site; old browsers send none


def is_cross_site(asked: WebRequest) -> bool:
    """Whether a browser says that a page of another site has made it send this."""
    return asked.header("sec-fetch-site") not in SAME_SITE


def why_not_own(asked: WebRequest) -> str:
    """Why a request that acts is not one of the dashboard's own page; empty when it is."""
    if asked.method != "POST":
        return "it is POST"
    if is_cross_site(asked):
        return "requests of other sites are not served"
    if not asked.header(MARK):
        return f"the header {MARK} is missing"
    origin = asked.header("origin")
    try:
        place = urlsplit(origin).netloc
    except ValueError:
        place = ""
    if not place or place.casefold() != asked.header("host").casefold():
        return "the Origin is not this server"
    if asked.header("content-type").partition(";")[0].strip().lower() != "application/json":
        return "the body is JSON"
    return ""


def is_local(asked: WebRequest) -> bool:
    """Whether a request comes from this machine, to a name that no page of another site can have.

    A proxy of this machine has its address, and may set the Host to that of the server: what it hands on is not local.
    """
    is_loopback = asked.ip == "::1" or asked.ip.startswith("127.")
    is_handed_on = any(asked.header(name) for name in OF_PROXIES)
    return is_loopback and not is_handed_on and is_own_host(asked.header("host"))
