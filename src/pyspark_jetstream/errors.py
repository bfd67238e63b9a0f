"""Errors, by what a caller does about them: correct the options, try another server, or stop the query."""


class JetStreamSourceError(Exception):
    """Base of the errors of this package; the message is for the user of the query."""


class BadOptionError(JetStreamSourceError, ValueError):
    """An option of the data source is unknown or has an invalid value; the message names it."""


class StreamNotFoundError(JetStreamSourceError):
    """The stream does not exist."""


class DataLossError(JetStreamSourceError):
    """Rows of the query no longer exist. `failOnDataLoss=false` turns this into a warning."""


class StreamRecreatedError(DataLossError):
    """The stream was deleted, and another one with the same name was created."""


class DurableConsumerError(DataLossError):
    """The durable consumer that holds the messages of a query does not exist or is another kind of consumer."""


class ServersUnavailableError(JetStreamSourceError):
    """No server gave a usable answer within the retry timeout; the message has each server's last failure."""


class ServerError(JetStreamSourceError):
    """One server failed (connection, timeout, protocol, refusal); another one may answer."""


class LoginRefusedError(ServerError):
    """The server refused the login. The first request of a query fails at once with it."""


class ReplicaBehindError(ServerError):
    """The replica has not applied everything up to the planned end, so its answer may lack rows."""


class UndecodableRowError(JetStreamSourceError):
    """A row does not fit the schema that decodes it; the message names stream, sequence and field."""


class SchemaChangedError(JetStreamSourceError):
    """The stream has another schema than the one that the query decodes by."""


class WriteRefusedError(JetStreamSourceError):
    """The stream does not take the rows, and would not take them later; the message has the server's reason."""


class RowError(JetStreamSourceError, ValueError):
    """A row cannot be a message; the message names the column."""


class SupersededError(JetStreamSourceError):
    """A later micro-batch of the query has been written: this task, or the checkpoint, is an older one."""


class NotReproducibleError(JetStreamSourceError):
    """A partition that was written in part, or by another attempt, has other rows now: writing could repeat rows."""
