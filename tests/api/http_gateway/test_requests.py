"""What a request of HTTP says, and what it cannot."""

import pytest

from jetraft.api.http_gateway.requests import RefusedRequestError, login_of

UNREADABLE = ["Basic \xffYTpi", "Basic YQ==", "Basic", "Digest x", "Bearer ", "Basic //8="]


@pytest.mark.parametrize("value", UNREADABLE)
def test_an_authorization_that_cannot_be_read_is_no_login(value: str) -> None:
    """Also one that is not ASCII: it was logged as a defect of the server."""
    with pytest.raises(RefusedRequestError) as refused:
        login_of(value)
    assert refused.value.status == 401
