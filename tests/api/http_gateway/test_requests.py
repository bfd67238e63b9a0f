"""What a request of HTTP says, and what it cannot."""

from typing import Any

import pytest

from jetraft.api.http_gateway.requests import RefusedRequestError, login_of

UNREADABLE = ["Basic \xffYTpi", "Basic YQ==", "Basic", "Digest x", "Bearer ", "Basic //8="]


@pytest.mark.parametrize("value", UNREADABLE)
def test_an_authorization_that_cannot_be_read_is_no_login(value: str) -> None:
    """Also one that is not ASCII: it was logged as a defect of the server."""
    with pytest.raises(RefusedRequestError) as refused:
        login_of(value)
    assert refused.value.status == 401


@pytest.mark.parametrize(
    ("token", "has_operators", "field"),
    [
        ("eyJhbGciOi.eyJqdGki.c2ln", True, "jwt"),
        ("eyJhbGciOi.eyJqdGki.c2ln", False, "auth_token"),  # the server knows one token alone
        ("eyJhbGciOi.eyJqdGki", True, "auth_token"),  # for the service that an account asks
        ("t0ken", True, "auth_token"),
    ],
)
def test_a_bearer_shows_a_jwt_where_operators_sign(token: str, has_operators: Any, field: str) -> None:
    assert login_of(f"Bearer {token}", has_operators=has_operators).fields == ((field, token),)
