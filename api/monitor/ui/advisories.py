"""AdvisoryFeeds of an account for the feeds of a user who has signed in, as far as the user may subscribe to them."""

from typing import Final

import attrs

from jetraft.api.monitor.ui.events import EventFeed, encoded
from jetraft.api.monitor.ui.sign_in import SignIn

SUBJECTS: Final = (b"$JS.EVENT.ADVISORY.STREAM.>", b"$JS.EVENT.ADVISORY.CONSUMER.>")  # not API: this page asks a lot
OF_SYSTEM: Final = (b"$SYS.ACCOUNT.*.CONNECT", b"$SYS.ACCOUNT.*.DISCONNECT", b"$SYS.SERVER.*.CLIENT.AUTH.ERR")
PAYLOAD_BYTES_MAX: Final = 3_000
FIRST_SID: Final = 2  # the inbox has 1


@attrs.define(eq=False)
class AdvisoryFeeds:
    """Which feeds each sign-in has."""

    _feeds: dict[SignIn, set[EventFeed]] = attrs.field(factory=dict)

    async def add(self, found: SignIn, feed: EventFeed, *, is_system: bool) -> None:
        """Tell a feed, until it or the sign-in has ended. The first feed subscribes, and the last one ends that."""
        feeds = self._feeds.setdefault(found, set())
        feeds.add(feed)
        subjects = SUBJECTS + (OF_SYSTEM if is_system else ())
        if len(feeds) == 1:
            found.client.listen(lambda subject, payload: tell(feeds, subject, payload))
            found.when_over(lambda: sign_out(feeds))
            for sid, subject in enumerate(subjects, start=FIRST_SID):
                await found.client.subscribe(sid, subject)
        await feed.gone.wait()
        feeds.discard(feed)
        if not feeds and self._feeds.get(found) is feeds:
            del self._feeds[found]
            for sid, _ in enumerate(subjects, start=FIRST_SID):
                await found.client.unsubscribe(sid)


def tell(feeds: set[EventFeed], subject: str, payload: bytes) -> None:
    """Give an advisory to feeds; without a subject it says why there are none."""
    if subject:
        text = payload[:PAYLOAD_BYTES_MAX].decode("utf-8", "replace")
        data = encoded("advisory", {"subject": subject, "payload": text, "whole": len(payload) <= PAYLOAD_BYTES_MAX})
    else:
        data = encoded("change", {"what": "denied", "reason": payload.decode("utf-8", "replace")})
    for feed in feeds:
        feed.put(data)


def sign_out(feeds: set[EventFeed]) -> None:
    """The sign-in has ended."""
    for feed in feeds:
        feed.put(encoded("change", {"what": "signed_out"}))
