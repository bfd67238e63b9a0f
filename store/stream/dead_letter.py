"""A consumer's memory of a message that it has given up, until another stream has it.

Part of replicated state (consumer_state.py). The time is that of the giving up: with the sequence it identifies the
letter, so that a message that is given up again, after a reset, is another letter.
"""

from __future__ import annotations

from typing import Final

import attrs

MAX_DELIVER: Final = "max_deliver"
TERM: Final = "term"
REASON_CHARS_MAX: Final = 256


@attrs.frozen(slots=True)
class DeadLetter:
    """One message that was given up and is to be handed on."""

    deliveries: int
    given_up_ns: int  # Unix time
    cause: str  # MAX_DELIVER or TERM
    reason: str  # what stood behind +TERM; empty for none
