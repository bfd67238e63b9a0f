"""JetStream API errors: a row of the catalogue (`ApiErrorSpec`), and the error that answers a request (`ApiError`).

The catalogue itself is `errors.py`, generated from `errors.tsv`. A row may carry placeholders (`{err}`, `{limit}`);
`with_values` fills them and gives the `ApiError`, which is both a value (handlers return it) and an exception
(validators raise it). Clients branch on `err_code`, people read `description`.
"""

import re
from typing import Final

import attrs

PLACEHOLDER: Final = re.compile(r"\{([a-z]+)\}")


@attrs.frozen(kw_only=True, slots=True)
class ApiErrorSpec:
    """One row of the catalogue; `code` is the HTTP-like class, `err_code` the number that clients branch on."""

    name: str
    err_code: int
    code: int
    description: str

    def with_values(self, **values: object) -> "ApiError":
        """The error with its placeholders filled in; every placeholder needs a value and every value a placeholder."""
        wanted = set(PLACEHOLDER.findall(self.description))
        assert wanted == set(values), f"{self.name} takes {sorted(wanted)}, not {sorted(values)}"
        description = PLACEHOLDER.sub(lambda match: str(values[match.group(1)]), self.description)
        return ApiError(code=self.code, err_code=self.err_code, description=description)


class ApiError(Exception):
    """An error answer of the API; equal to another if all three fields are.

    Clients receive it unchanged; nothing else of an exception (traceback, cause) leaves a node.
    """

    def __init__(self, *, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.err_code = err_code
        self.description = description

    def to_json_dict(self) -> dict[str, object]:
        """The JSON object under `error`, in nats-server's field order; zero fields are omitted, as in Go."""
        answer: dict[str, object] = {"code": self.code}
        if self.err_code:
            answer["err_code"] = self.err_code
        if self.description:
            answer["description"] = self.description
        return answer

    def matches(self, spec: ApiErrorSpec) -> bool:
        """Whether this error was made from that row of the catalogue, with any values."""
        return self.err_code == spec.err_code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ApiError) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"ApiError({self.code}, {self.err_code}, {self.description!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, self._key()

    def _key(self) -> tuple[int, int, str]:
        return (self.code, self.err_code, self.description)


def _rebuild(code: int, err_code: int, description: str) -> ApiError:
    return ApiError(code=code, err_code=err_code, description=description)
