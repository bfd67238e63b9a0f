"""When many consumers that wait for messages are stepped. Pure.

A step and the record of its deliveries cost the same for one message and for fifty, on every replica. Where the record
comes before the messages leave, it is committed no sooner than the messages that are in the log before it: so with some
of these on their way, deliveries that wait for them come one round later, and half as many are recorded. That is done
where there is enough to gain, and a few times in a row at most.
"""

from typing import Final

import attrs

HUNGRY_AT_ONCE_MAX: Final = 16  # with more, new messages wait for the deliveries that are on their way into the log
MESSAGES_EACH: Final = 50  # that wait for each consumer are enough for a step
PUT_OFF_MAX: Final = 3  # times in a row; each is a round of commits


@attrs.define(eq=False)
class Crowd:
    """The events that the consumers of one stream wait for."""

    _stepped_seq: int = 0  # the last message when they were stepped
    _times_put_off: int = 0

    @property
    def is_put_off(self) -> bool:
        """Whether the next entry that is applied is to ask again."""
        return self._times_put_off > 0

    def is_due(self, consumers: int, *, last_seq: int, coming: int) -> bool:
        """Whether they are to be stepped now, with messages up to `last_seq`, while so many are on their way."""
        have_little = last_seq - self._stepped_seq < consumers * MESSAGES_EACH
        if have_little and coming >= consumers and self._times_put_off < PUT_OFF_MAX:
            self._times_put_off += 1
            return False
        self._times_put_off, self._stepped_seq = 0, last_seq
        return True
