"""Differences from the reference that are meant, each with its reason. An entry that no longer differs is an error.

Key: (scene, step, path of the field); a path of "" admits any difference in the step.
"""

KNOWN: dict[tuple[str, str, str], str] = {}
