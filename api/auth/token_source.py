"""A source of accounts that are not known here, and why it was not."""

from typing import Protocol


class AccountLookupError(Exception):
    """An account was not found; the text is one line without secrets."""


class TokenSource(Protocol):
    """Another place with tokens of accounts."""

    async def fetch(self, key: str) -> bytes:
        """The token of an account, which is not verified. Raises AccountLookupError, in bounded time."""
        ...
