"""Features that need a package that is not always installed, and the extra that brings it: the only list of them.

Everything else that jetraft imports is a dependency (pyproject.toml); that it is missing is damage, and no extra helps.
Pure: a table and a question about an error.
"""

from typing import Final

import attrs


@attrs.frozen(kw_only=True, slots=True)
class Extra:
    """A line of `project.optional-dependencies`, and the modules that its packages bring."""

    name: str
    modules: frozenset[str]  # by the name up to the first dot

    @property
    def command(self) -> str:
        """How it is installed."""
        return f"pip install 'jetraft[{self.name}]'"

    @property
    def advice(self) -> str:
        """That it is missing, and what to do; fits after a colon."""
        return f"the extra {self.name} is not installed: {self.command}"


# Of the commands backup, restore, export and chain; of streams with `jetraft.schema`; of the commands for running
# clusters; of `jetraft traces`; of the second engine.
TOOLS: Final = Extra(name="tools", modules=frozenset({"pyspark_jetstream", "pyarrow"}))
SCHEMA: Final = Extra(name="schema", modules=frozenset({"fastavro", "google", "jsonschema_rs"}))
CLI: Final = Extra(name="cli", modules=frozenset({"typer", "rich", "nats", "nkeys"}))
OTEL: Final = Extra(name="otel", modules=frozenset({"opentelemetry"}))
PYSYNCOBJ: Final = Extra(name="pysyncobj", modules=frozenset({"pysyncobj"}))
EXTRAS: Final = (TOOLS, CLI, SCHEMA, OTEL, PYSYNCOBJ)


def missing_extra(error: ImportError) -> Extra | None:
    """The extra that would have brought the module that could not be imported; None when it is another fault."""
    if not isinstance(error, ModuleNotFoundError):
        return None  # the module is there and is broken, or lacks a name
    top = (error.name or "").partition(".")[0]
    return next((extra for extra in EXTRAS if top in extra.modules), None)
