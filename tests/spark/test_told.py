"""What Spark's worker makes of an error: the sentence of this package comes first, whatever it does to tracebacks."""

import io

import pytest

from pyspark_jetstream.errors import StreamRecreatedError
from pyspark_jetstream.leader import ApiRefusalError
from pyspark_jetstream.told import sentence_first

worker = pytest.importorskip("pyspark.util")


@sentence_first()
def ask() -> None:
    told = StreamRecreatedError("stream 'S' was deleted and created again")
    told.add_note("failOnDataLoss=false continues")
    raise told from OSError("the network is down")


def shown() -> str:
    """What Spark gets from its worker."""
    target = io.BytesIO()
    try:
        ask()
    except StreamRecreatedError as error:
        worker.handle_worker_exception(error, target)
    return target.getvalue()[8:].decode()  # behind a mark and a length


@pytest.mark.parametrize("simplified", ["", "1"])
def test_the_sentence_with_its_notes_is_before_the_traceback(simplified: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", simplified)
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    sentence = "pyspark_jetstream.errors.StreamRecreatedError: stream 'S' was deleted and created again"
    told, _, traceback = shown().partition("Traceback (most recent call last)")
    assert told.startswith(f"{sentence}\nfailOnDataLoss=false continues\n")
    assert sentence in traceback
    assert "test_told.py" in traceback


def test_a_hidden_traceback_leaves_the_sentence_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "1")
    assert shown().count("was deleted and created again") == 1


def test_an_error_is_still_one_of_its_class_with_what_it_has() -> None:
    with pytest.raises(ApiRefusalError, match="no such thing") as raised, sentence_first():
        raise ApiRefusalError(10014, "no such thing")
    assert raised.value.err_code == 10014


# They ask nobody; `read` gives an iterator that does it.
ASK_NOBODY = {"name", "read", "getDefaultReadLimit", "pushFilters", "reportLatestOffset", "stop"}


def test_all_that_spark_calls_and_that_may_fail_tells_its_sentence_first() -> None:
    from pyspark_jetstream.source import BatchReader, DefaultSource, PushdownReader, StreamReader  # noqa: PLC0415
    from pyspark_jetstream.write.sinks import BatchWriter, StreamWriter  # noqa: PLC0415

    for kind in (DefaultSource, BatchReader, PushdownReader, StreamReader, BatchWriter, StreamWriter):
        for name, method in vars(kind).items():
            if callable(method) and not name.startswith("_") and name not in ASK_NOBODY:
                assert hasattr(method, "__wrapped__"), f"{kind.__name__}.{name}"


def test_other_errors_pass_as_they_are() -> None:
    with pytest.raises(KeyError) as raised, sentence_first():
        raise KeyError("a defect")
    assert type(raised.value) is KeyError
    assert raised.value.__cause__ is None
