"""What is violated today, and why: the table is to become empty. A row that is not violated any more fails its test."""

from tests.corruption.damages import Damage

Key = tuple[str, str, Damage]  # setup, kind of file, damage

KNOWN: dict[Key, str] = {}
