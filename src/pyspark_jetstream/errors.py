"""What can go wrong, by what a caller does about it: correct the options, try another server, or stop the query."""


class JetStreamSourceError(Exception):
    """Base of every error that this package raises on purpose; the message is meant for the user of the query."""


class BadOptionError(JetStreamSourceError, ValueError):
    """An option of the data source is unknown or has a value that cannot be used; the message names it."""


class StreamNotFoundError(JetStreamSourceError):
    """The servers answered, and the stream does not exist."""


class DataLossError(JetStreamSourceError):
    """Rows that the query should have read are gone. `failOnDataLoss=false` turns this into a warning."""


class StreamRecreatedError(DataLossError):
    """The stream is not the one that was planned: it was deleted, and one of the same name was made."""


class ServersUnavailableError(JetStreamSourceError):
    """No server gave a usable answer until the retry deadline; the message has each server's last failure."""


class ServerError(JetStreamSourceError):
    """One server failed us (connection, timeout, protocol, refusal): the next one is worth a try."""


class ReplicaBehindError(ServerError):
    """The replica has not yet applied everything up to the planned end, so its answer may lack rows."""
