"""Differences from the reference that are meant, each with its reason. An entry that no longer differs is an error.

Scene, step and path of the field are patterns of text in which `*` stands for anything; a path of "*" admits any
difference in the step.
"""

import re

import attrs


@attrs.frozen(kw_only=True)
class Known:
    """One meant difference."""

    scene: str
    step: str
    path: str
    reason: str

    def covers(self, scene: str, step: str, path: str) -> bool:
        """Whether this entry speaks of that field."""
        return all(
            re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), given)
            for pattern, given in ((self.scene, scene), (self.step, step), (self.path, path))
        )


KNOWN: tuple[Known, ...] = (
    Known(
        scene="core/*",
        step="*",
        path="*xkey",
        reason="the curve key of auth callouts; a server that serves none must not offer one",
    ),
)


def meant(scene: str, step: str, path: str) -> bool:
    """Whether a difference in this field is on the list."""
    return any(known.covers(scene, step, path) for known in KNOWN)
