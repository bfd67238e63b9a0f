"""The commands by which a consumer is deleted at a cost that does not grow with its stream. Pure."""

from typing import Final

from jetraft.cluster.state import commands
from jetraft.cluster.state.machine import StreamMachine
from jetraft.store.model.config import RetentionPolicy

APPLIED_AT_ONCE_MAX: Final = 10_000  # messages of a stream in which applying a deletion looks at each: some 10 ms
BEYOND: Final = 1 << 62  # above every sequence (stream_store.py: SEQ_MAX)


def deletion_of_consumer(machine: StreamMachine, name: str) -> list[commands.ConsumerCommand]:
    """The commands that delete a consumer, at a cost that does not grow with the stream.

    A consumer that waits for nothing leaves nothing over when it goes. So where an interest stream has many messages it
    is moved past all of them first, in the same entry, and the leader looks for what is left over (decision 129).
    """
    config = machine.config
    if config is None or config.retention is not RetentionPolicy.INTEREST or machine.messages <= APPLIED_AT_ONCE_MAX:
        return [commands.DeleteConsumer(name)]
    return [commands.ResetConsumer(name, BEYOND), commands.DeleteConsumer(name)]
