"""How a command fails: one line that says what is wrong and what to do about it."""

from typing import Final

USAGE_STATUS: Final = 2
FAILED_STATUS: Final = 1
STATUSES: Final = "Exit status: 0 done, 1 failed with one line on the standard error stream, 2 wrong usage."

# By the error code of the API (store/model/errors.py): what a user does next.
ADVICE: Final = {
    10014: "`jetraft consumer ls STREAM` lists the consumers of a stream",
    10023: "the limits of the account or of the servers leave no room: `jetraft account info` shows them",
    10037: "`jetraft stream get STREAM --last-for SUBJECT` gets the newest message of a subject",
    10039: "log in to an account that has JetStream (--user, --creds, --context)",
    10044: "`jetraft server report` shows the members of the metadata group",
    10047: "raise max_file_store or max_mem_store of the servers, or store less",
    10058: "`jetraft stream edit` changes a stream that exists",
    10059: "`jetraft stream ls` lists the streams of the account",
    10065: "`jetraft stream find --subject SUBJECT` names the stream that has these subjects",
    10071: "it was changed meanwhile: read it again, and decide again",
    10076: "start the server with -js, or connect to one that has JetStream",
    10148: "`jetraft consumer edit` changes a consumer that exists",
}


class CommandError(Exception):
    """A command could not be done; the text is one line."""

    status = FAILED_STATUS


class UsageError(CommandError):
    """The command line is wrong; the text is one line."""

    status = USAGE_STATUS


class UnansweredError(CommandError):
    """No answer came: there is no responder, nothing came in time, or the connection was lost. Another try may do."""


class AnsweredError(CommandError):
    """A server refused a request with an error of its catalogue."""

    def __init__(self, error: dict[str, object]) -> None:
        number = error.get("err_code", error.get("code", 0))
        self.err_code = number if isinstance(number, int) else 0
        text = f"{error.get('description', 'refused')} ({self.err_code})"
        advice = ADVICE.get(self.err_code)
        super().__init__(text if advice is None else f"{text}: {advice}")
