"""nats-server's command line: one or two dashes, `-p 4222` or `--port=4222`, -1 for a random port.

`parse_flags` turns arguments into settings (option name -> value) without reading any file; `HELP` is what --help says.
The rules are those of Go's flag package, because everything that starts a nats-server binary relies on them.
"""

from collections.abc import Callable, Iterable
from typing import Any

import attrs

TRUE_WORDS = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE_WORDS = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class FlagError(ValueError):
    """The command line is wrong; the text is one line."""


@attrs.frozen
class Flag:
    """One option: its spellings, the setting it makes, whether it stands alone, and its line of help."""

    names: tuple[str, ...]
    setting: str
    convert: Callable[[str], Any]
    argument: str
    help: str


def boolean(text: str) -> bool:
    """A boolean as Go's strconv.ParseBool reads it."""
    if text in TRUE_WORDS:
        return True
    if text in FALSE_WORDS:
        return False
    raise ValueError(text)


def routes(text: str) -> tuple[str, ...]:
    """A comma-separated list of route URLs."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


SECTIONS: tuple[tuple[str, tuple[Flag, ...]], ...] = (
    (
        "Server",
        (
            Flag(("a", "addr", "net"), "host", str, "host", "bind to this address (default: 0.0.0.0)"),
            Flag(("p", "port"), "port", int, "port", "port for clients (default: 4222, -1: any free port)"),
            Flag(("n", "name", "server_name"), "server_name", str, "name", "name of this server (default: its id)"),
            Flag(("P", "pid"), "pid_file", str, "file", "write the process id to this file"),
            Flag(("m", "http_port"), "http_port", int, "port", "port for HTTP monitoring (-1: any free port)"),
            Flag(("c", "config"), "config_file", str, "file", "configuration file"),
            Flag(("t",), "test_config", boolean, "", "check the configuration and exit"),
            Flag(
                ("sl", "signal"),
                "signal",
                str,
                "signal[=pid]",
                "send a signal (ldm, stop, quit, term, reopen, reload) to a server",
            ),
            Flag(("client_advertise",), "client_advertise", str, "host:port", "address that peers tell to clients"),
            Flag(("ports_file_dir",), "ports_file_dir", str, "dir", "write <program>_<pid>.ports into this directory"),
        ),
    ),
    (
        "Logging",
        (
            Flag(("l", "log"), "log_file", str, "file", "log to this file"),
            Flag(("T", "logtime"), "logtime", boolean, "", "put the time before each line (default: true)"),
            Flag(("logtime_utc",), "logtime_utc", boolean, "", "that time in UTC"),
            Flag(("D", "debug"), "debug", boolean, "", "log debug lines"),
            Flag(("V", "trace"), "trace", boolean, "", "accepted with a warning: the protocol is not logged"),
            Flag(("VV",), "trace_verbose", boolean, "", "the same"),
            Flag(("DV",), "debug_trace", boolean, "", "-D and -V"),
            Flag(("DVV",), "debug_trace_verbose", boolean, "", "-D and -VV"),
            Flag(("log_size_limit",), "log_size_limit", int, "bytes", "begin a new log file at this size"),
        ),
    ),
    (
        "JetStream",
        (
            Flag(("js", "jetstream"), "jetstream", boolean, "", "enable JetStream"),
            Flag(("sd", "store_dir"), "store_dir", str, "dir", "keep streams below this directory"),
        ),
    ),
    (
        "Authorization",
        (
            Flag(("user",), "user", str, "name", "user that clients must name"),
            Flag(("pass",), "password", str, "password", "password of that user"),
            Flag(("auth",), "token", str, "token", "token that clients must give"),
        ),
    ),
    (
        "Cluster",
        (
            Flag(("routes",), "routes", routes, "url,url", "peers to connect to"),
            Flag(("cluster", "cluster_listen"), "cluster_listen", str, "url", "address on which peers connect here"),
            Flag(("cluster_name",), "cluster_name", str, "name", "name of the cluster; peers must have the same"),
            Flag(("no_advertise",), "no_advertise", boolean, "", "do not tell clients of the other servers"),
            Flag(("cluster_advertise",), "cluster_advertise", str, "host:port", "address that peers tell to peers"),
            Flag(("connect_retries",), "connect_retries", int, "n", "accepted: peers are tried again for ever"),
        ),
    ),
    (
        "Common",
        (
            Flag(("h", "help"), "help", boolean, "", "show this text"),
            Flag(("v", "version"), "version", boolean, "", "show the version"),
        ),
    ),
)

# Flags of nats-server whose subject this server does not serve yet: named, so that the answer is clear.
NOT_SERVED = {
    "ms": "HTTPS monitoring", "https_port": "HTTPS monitoring", "s": "syslog", "syslog": "syslog", "r": "remote syslog",
    "remote_syslog": "remote syslog", "tls": "TLS", "tlscert": "TLS", "tlskey": "TLS", "tlsverify": "TLS",
    "tlscacert": "TLS", "help_tls": "TLS", "profile": "profiling",
    "max_traced_msg_len": "tracing",
}  # fmt: skip


def _by_name() -> dict[str, Flag]:
    return {name: flag for _, flags in SECTIONS for flag in flags for name in flag.names}


def help_text(program: str = "jetraft") -> str:
    """What --help prints."""
    lines = [
        f"Usage: {program} [options]",
        f"       {program} inspect|verify DIR    look at a store directory (--help)",
        f"       {program} recover DIR           go on without a majority that is lost for ever (--help)",
    ]
    for title, flags in SECTIONS:
        lines += ["", f"{title} options:"]
        for flag in flags:
            spelled = ", ".join(("-" if len(name) < 4 else "--") + name for name in flag.names)  # noqa: PLR2004
            left = f"    {spelled} <{flag.argument}>" if flag.argument else f"    {spelled}"
            lines.append(f"{left:<42} {flag.help}")
    return "\n".join([*lines, ""])


def parse_flags(arguments: Iterable[str]) -> dict[str, Any]:
    """Settings from the command line; the last of equal flags wins. Raises FlagError."""
    by_name, settings = _by_name(), dict[str, Any]()
    queue = list(arguments)
    while queue:
        word = queue.pop(0)
        if not word.startswith("-") or word == "-":
            raise FlagError(f'unrecognized command: "{word}"')
        if word == "--":
            break
        name, has_value, value = word.lstrip("-").partition("=")
        if name in NOT_SERVED:
            raise FlagError(f"-{name}: {NOT_SERVED[name]} is not served by jetraft yet")
        flag = by_name.get(name)
        if flag is None:
            raise FlagError(f"flag provided but not defined: -{name}")
        if not has_value:
            if not flag.argument:
                value = "true"
            elif queue:
                value = queue.pop(0)
            else:
                raise FlagError(f"flag needs an argument: -{name}")
        try:
            settings[flag.setting] = flag.convert(value)
        except ValueError as error:
            raise FlagError(f'invalid value "{value}" for flag -{name}: parse error') from error
    return settings
