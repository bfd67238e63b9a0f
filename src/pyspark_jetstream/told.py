"""The sentence of an error comes before Spark's traceback.

Spark shows an error of a Python source as the traceback that its worker formats: the sentence is the last of some forty
lines. A cause that has no traceback is printed before it, as its class and its sentence and nothing else. So what Spark
calls gives its errors such a cause, in the place of the one that they have: what the user needs of that is in the
sentence. Where Spark shortens tracebacks (spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled, on by default),
it also assigns None to `__cause__`, which does nothing here.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_jetstream.errors import JetStreamSourceError


@contextmanager
def sentence_first() -> Iterator[None]:
    """For what Spark calls: an error of this package passes with its sentence as its cause, for good."""
    try:
        yield
    except JetStreamSourceError as error:
        kind = type(error)
        first = kind.__new__(kind, str(error))  # not by __init__, which may want other arguments
        for note in getattr(error, "__notes__", ()):
            first.add_note(note)
        cause = property(lambda _: first, lambda _, __: None)
        error.__class__ = type(kind.__name__, (kind,), {"__module__": kind.__module__, "__cause__": cause})
        raise
