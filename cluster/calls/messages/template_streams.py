"""The question of a node for a message on a subject of a template (cluster/requests/template_publishes.py).

template.stream:  the subject -> TemplateStreamAnswer     template.publish: captured messages -> nothing
template.followed: MetaIndex -> nothing
"""

from __future__ import annotations

from typing import Final

import attrs

from jetraft.raft.mesh.messages import Message, number, protocol, text

CREATE: Final = b"template.stream"
PUBLISH: Final = b"template.publish"
FOLLOWED: Final = "template.followed"
DESCRIPTION_CHARS_MAX: Final = 8192  # of an error: it may have a config's text in it
ANSWER_BYTES_MAX: Final = 4 * DESCRIPTION_CHARS_MAX + 64


@protocol("an answer about a template's stream", bytes_max=ANSWER_BYTES_MAX)
@attrs.frozen(kw_only=True, slots=True)
class TemplateStreamAnswer(Message):
    """The stream of a subject is there if `code` is 0; otherwise the error of the catalogue that says why it is not."""

    code: int = attrs.field(default=0, metadata=number())
    err_code: int = attrs.field(default=0, metadata=number())
    description: str = attrs.field(default="", metadata=text(DESCRIPTION_CHARS_MAX))
