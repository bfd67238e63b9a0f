"""A server that cannot write its store says who it is and whom the store belongs to."""

import os
from pathlib import Path

from jetraft.api.logs.start_errors import cannot_start


def test_a_store_of_another_user_is_named_with_both(tmp_path: Path) -> None:
    error = PermissionError(13, "Permission denied", str(tmp_path / "jetstream" / "lock"))
    line = cannot_start(error, is_damage=False)
    assert f"{tmp_path} belongs to user {os.geteuid()}" in line
    assert f"runs as user {os.geteuid()}" in line
    assert "\n" not in line
