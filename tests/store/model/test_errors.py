"""The catalogue: generated, complete, and its placeholders filled."""

import importlib.util
import pickle
from pathlib import Path

import pytest

from jetraft.store.model import errors
from jetraft.store.model.errors import ApiError

ROOT = Path(__file__).resolve().parents[3]


def test_the_catalogue_is_what_the_generator_writes() -> None:
    spec = importlib.util.spec_from_file_location("gen_errors", ROOT / "tools" / "gen_errors.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)

    table = (ROOT / "store" / "model" / "errors.tsv").read_text(encoding="utf-8")

    assert generator.generate(table) == (ROOT / "store" / "model" / "errors.py").read_text(encoding="utf-8")


def test_the_catalogue_has_every_code_once() -> None:
    assert [spec.err_code for spec in errors.ALL] == [*range(10002, 10228), 19001, 19002, 19003]
    assert len(errors.BY_NAME) == 229


@pytest.mark.parametrize(("code", "rows"), [(400, 172), (500, 33), (503, 13), (404, 4), (429, 3), (412, 2), (409, 1)])
def test_the_classes_have_the_known_sizes(code: int, rows: int) -> None:
    assert sum(spec.code == code for spec in errors.ALL) == rows


def test_placeholders_are_filled() -> None:
    error = errors.RESTORE_SUBSCRIBE_FAILED.with_values(subject="a.b", err="{err} stays")

    assert str(error) == "JetStream unable to subscribe to restore snapshot a.b: {err} stays"
    assert error.to_json_dict() == {"code": 500, "err_code": 10042, "description": str(error)}


def test_a_missing_or_surplus_value_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        errors.INVALID_JSON.with_values()
    with pytest.raises(AssertionError):
        errors.STREAM_NOT_FOUND.with_values(err="x")


def test_errors_are_values() -> None:
    error = errors.STREAM_NOT_FOUND.with_values()

    assert error == errors.STREAM_NOT_FOUND.with_values()
    assert error != errors.CONSUMER_NOT_FOUND.with_values()
    assert error.matches(errors.STREAM_NOT_FOUND)
    assert len({error, errors.STREAM_NOT_FOUND.with_values()}) == 1
    assert pickle.loads(pickle.dumps(error)) == error


def test_an_error_without_a_catalogue_number_leaves_it_out() -> None:
    assert ApiError(code=500, err_code=0, description="").to_json_dict() == {"code": 500}
