"""Field by field: the paths at which two observations differ."""

from typing import Any

MISSING = "(missing)"


def flatten(shown: Any, path: str = "") -> dict[str, Any]:
    """Leaves of a JSON value by path; empty containers are leaves, because a client can tell them from nothing."""
    if isinstance(shown, dict) and shown:
        leaves: dict[str, Any] = {}
        for key, value in shown.items():
            leaves |= flatten(value, f"{path}.{key}" if path else key)
        return leaves
    if isinstance(shown, list) and shown:
        leaves = {f"{path}#": len(shown)}
        for position, value in enumerate(shown):
            leaves |= flatten(value, f"{path}[{position}]")
        return leaves
    return {path: shown}


def differences(expected: Any, actual: Any) -> list[tuple[str, Any, Any]]:
    """(path, expected, actual) for every field that is not the same, in the order of the expected answer."""
    left, right = flatten(expected), flatten(actual)
    paths = [*left, *(path for path in right if path not in left)]
    return [
        (path, left.get(path, MISSING), right.get(path, MISSING))
        for path in paths
        if left.get(path, MISSING) != right.get(path, MISSING)
        or type(left.get(path, MISSING)) is not type(right.get(path, MISSING))
    ]
