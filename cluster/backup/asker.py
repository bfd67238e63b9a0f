"""The client that asks for an archive: what events tell of it, and how the outcome is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jetraft.store.model.api_error import ApiError


@attrs.frozen(kw_only=True)
class Asker:
    """See the module. `answer` shapes the outcome for the client: a stream's info, or an error."""

    client: Mapping[str, object]
    answer: Callable[[Mapping[str, Any] | ApiError], bytes]
