"""`latency` of an exported service: a subject, or `{ sampling, subject }`. Texts of errors are nats-server's."""

from jetraft.api.config.blocks import PlacedError
from jetraft.api.config.gotypes import go_type
from jetraft.api.config.grammar import Table
from jetraft.api.config.settings import OptionsError
from jetraft.api.exchange.values import LatencySampling
from jetraft.store.model.gosyntax import go_quote

PERCENT = 100
HEADERS = "headers"


def latency(_key: str, value: object) -> LatencySampling:
    """The subject to which latencies are told, and of how many requests. Fields with other names are passed over."""
    if isinstance(value, str):
        return LatencySampling(subject=value)
    if not isinstance(value, Table):
        raise OptionsError(f"Expected latency entry to be a map/struct or string, got {go_type(value)}")
    percent = PERCENT
    if "sampling" in value:
        try:
            percent = sampling(value["sampling"])
        except OptionsError as error:
            raise PlacedError(f"{value.place('sampling')}: {error}") from error
    if "subject" not in value:
        raise OptionsError("Latency subject required, but missing")
    subject = value["subject"]
    if not isinstance(subject, str):
        raise PlacedError(f"{value.place('subject')}: Expected latency subject to be a string, got string")
    return LatencySampling(subject=subject, percent=percent)


def sampling(value: object) -> int:
    """A number from 1 to 100, the same with a sign of percent, or 0 for `headers`."""
    if isinstance(value, str):
        if value.strip().lower() == HEADERS:
            return 0
        digits = value.removesuffix("%")
        if not digits.isascii() or not digits.removeprefix("-").removeprefix("+").isdigit():
            raise OptionsError(
                f"Failed to parse latency sample: strconv.Atoi: parsing {go_quote(digits)}: invalid syntax"
            )
        value = int(digits)
    if not isinstance(value, int) or isinstance(value, bool):
        raise OptionsError(f"Expected latency sample to be a string or map/struct, got {go_type(value)}")
    if not 1 <= value <= PERCENT:
        raise OptionsError("bad sampling percentage, should be 1-100")
    return value
