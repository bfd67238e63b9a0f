"""The body of CONSUMER.RESET: unknown fields are passed over in this request alone."""

import pytest

from jetraft.store.model.api_error import ApiError
from jetraft.store.model.encoding.jsoncodec import unmarshal
from jetraft.store.model.requests import JSApiConsumerResetRequest


@pytest.mark.parametrize("body", [b'{"seq":7}', b'{"other":1,"seq":7}', b'{"seq":7,"other":{"a":[]}}'])
def test_other_fields_do_not_matter(body: bytes) -> None:
    assert unmarshal(JSApiConsumerResetRequest, body).seq == 7


@pytest.mark.parametrize(
    "value", [b"[" * 2000 + b"]" * 2000, b'{"a":' * 500 + b"1" + b"}" * 500, b"-1", b"1e400", b"{"]
)
def test_a_sequence_that_is_none_is_an_error_of_the_request(value: bytes) -> None:
    with pytest.raises(ApiError) as raised:
        unmarshal(JSApiConsumerResetRequest, b'{"seq":%s}' % value)
    assert raised.value.err_code == 10025
