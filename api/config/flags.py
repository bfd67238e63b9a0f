"""nats-server's command line: one or two dashes, `-p 4222` or `--port=4222`, -1 for a random port.

`parse_flags` turns arguments into settings (option name -> value) and reads no file. The rules are those of Go's flag
package, on which scripts that start nats-server rely.
"""

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from jetraft.api.config.grammar import typed

TRUE_WORDS = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE_WORDS = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class FlagError(ValueError):
    """The command line is wrong; the text is one line."""


@attrs.frozen
class CommandFlag:
    """One option: its names, its setting, the name of its argument (empty: it has none), and its line of help."""

    names: tuple[str, ...]
    setting: str
    convert: Callable[[str], Any]
    argument: str
    help: str


def boolean(text: str) -> bool:
    """Parse a boolean like Go's strconv.ParseBool. Raises ValueError."""
    if text in TRUE_WORDS:
        return True
    if text in FALSE_WORDS:
        return False
    raise ValueError(text)


def routes(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of route URLs."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def size(text: str) -> int:
    """Parse bytes with an optional unit, as in the configuration file. Raises ValueError."""
    value = typed(text)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(text)
    return value


SECTIONS: tuple[tuple[str, tuple[CommandFlag, ...]], ...] = (
    (
        "Server",
        (
            CommandFlag(("a", "addr", "net"), "host", str, "host", "address to listen on (default: 0.0.0.0)"),
            CommandFlag(("p", "port"), "port", int, "port", "port for clients (default: 4222, -1: any free port)"),
            CommandFlag(
                ("n", "name", "server_name"), "server_name", str, "name", "server name (default: the server id)"
            ),
            CommandFlag(("P", "pid"), "pid_file", str, "file", "write the process id to this file"),
            CommandFlag(("m", "http_port"), "http_port", int, "port", "port for HTTP monitoring (-1: any free port)"),
            CommandFlag(
                ("ms", "https_port"), "https_port", int, "port", "port for HTTPS monitoring, with the listener's tls"
            ),
            CommandFlag(("c", "config"), "config_file", str, "file", "configuration file"),
            CommandFlag(("t",), "test_config", boolean, "", "check the configuration and exit"),
            CommandFlag(
                ("sl", "signal"),
                "signal",
                str,
                "signal[=pid]",
                "send ldm, stop, quit, term, reopen or reload (pid: number or file)",
            ),
            CommandFlag(
                ("client_advertise",),
                "client_advertise",
                str,
                "host:port",
                "address that peers give clients",
            ),
            CommandFlag(
                ("ports_file_dir",), "ports_file_dir", str, "dir", "write <program>_<pid>.ports into this directory"
            ),
        ),
    ),
    (
        "Logging",
        (
            CommandFlag(("l", "log"), "log_file", str, "file", "log to this file"),
            CommandFlag(("s", "syslog"), "syslog", boolean, "", "log to the syslog of this machine"),
            CommandFlag(("r", "remote_syslog"), "remote_syslog", str, "url", "log to another syslog"),
            CommandFlag(("T", "logtime"), "logtime", boolean, "", "start each line with the time (default: true)"),
            CommandFlag(("logtime_utc",), "logtime_utc", boolean, "", "log times in UTC"),
            CommandFlag(("D", "debug"), "debug", boolean, "", "log debug lines"),
            CommandFlag(("V", "trace"), "trace", boolean, "", "log what clients send and receive"),
            CommandFlag(("VV",), "trace_verbose", boolean, "", "as -V"),
            CommandFlag(("DV",), "debug_trace", boolean, "", "-D and -V"),
            CommandFlag(("DVV",), "debug_trace_verbose", boolean, "", "-D and -VV"),
            CommandFlag(("log_size_limit",), "log_size_limit", int, "bytes", "start a new log file at this size"),
        ),
    ),
    (
        "JetStream",
        (
            CommandFlag(("js", "jetstream"), "jetstream", boolean, "", "enable JetStream"),
            CommandFlag(("sd", "store_dir"), "store_dir", str, "dir", "store streams in this directory"),
            CommandFlag(
                ("max_mem_store",), "max_memory_store", size, "size", "most that streams in memory hold (256MB)"
            ),
            CommandFlag(("max_file_store",), "max_file_store", size, "size", "most that streams in files hold (10GB)"),
        ),
    ),
    (
        "Authorization",
        (
            CommandFlag(("user",), "user", str, "name", "user name that clients have to send"),
            CommandFlag(("pass",), "password", str, "password", "password of that user"),
            CommandFlag(("auth",), "token", str, "token", "token that clients have to send"),
        ),
    ),
    (
        "TLS",
        (
            CommandFlag(("tls",), "tls_flag", boolean, "", "enable TLS, do not verify clients"),
            CommandFlag(("tlscert",), "tls_cert", str, "file", "server certificate"),
            CommandFlag(("tlskey",), "tls_key", str, "file", "private key of the server certificate"),
            CommandFlag(("tlsverify",), "tls_verify", boolean, "", "enable TLS, verify client certificates"),
            CommandFlag(("tlscacert",), "tls_ca_cert", str, "file", "authorities of client certificates"),
            CommandFlag(("help_tls",), "help_tls", boolean, "", "show what a tls block may contain"),
        ),
    ),
    (
        "Cluster",
        (
            CommandFlag(("routes",), "routes", routes, "url,url", "peers to connect to"),
            CommandFlag(("cluster", "cluster_listen"), "cluster_listen", str, "url", "address to listen on for peers"),
            CommandFlag(("cluster_name",), "cluster_name", str, "name", "cluster name, the same on all peers"),
            CommandFlag(
                ("cluster_secret_file",), "cluster_secret_file", str, "file", "file with the secret that peers prove"
            ),
            CommandFlag(("no_advertise",), "no_advertise", boolean, "", "do not send clients the addresses of peers"),
            CommandFlag(
                ("cluster_advertise",), "cluster_advertise", str, "host:port", "address of this server for peers"
            ),
            CommandFlag(
                ("connect_retries",), "connect_retries", int, "n", "ignored: connecting is retried without end"
            ),
        ),
    ),
    (
        "Common",
        (
            CommandFlag(("h", "help"), "help", boolean, "", "show this text"),
            CommandFlag(("v", "version"), "version", boolean, "", "show the version"),
        ),
    ),
)

# Flags of nats-server that are not served yet, and the feature that the error names.
NOT_SERVED = {
    "profile": "profiling", "max_traced_msg_len": "tracing",
}  # fmt: skip


def _by_name() -> dict[str, CommandFlag]:
    return {name: flag for _, flags in SECTIONS for flag in flags for name in flag.names}


def help_text(program: str = "jetraft") -> str:
    """Return the text of --help."""
    lines = [
        f"Usage: {program} [serve] [options]     run a server",
        f"       {program} inspect DIR           print the contents of a store directory",
        f"       {program} verify DIR            check a store directory for damage",
        f"       {program} quarantine DIR        list or remove what a store keeps of damaged logs for inspection",
        f"       {program} recover DIR           continue groups that have permanently lost their majority",
        f"       {program} backup|restore DIR    keep the streams of running servers in a directory",
        f"       {program} export FILE           write a stream of running servers to a Parquet file",
        f"       {program} chain verify STREAM   recompute the head of a chained stream from its messages",
        f"       {program} stream|consumer ...   show and change what a running cluster has (docs/cli.md)",
        f"       {program} pub|sub|req|reply ...  send and receive messages",
        f"       {program} kv|object ...         buckets of keys, buckets of files",
        f"       {program} server|account ...    show servers and their health, what an account uses",
        f"       {program} doctor|events|traces ...  check a deployment, print events, send traces to a collector",
        f"       {program} bench|top ...             measure a server or a cluster, watch one",
        f"       {program} context ...           keep the options of connections",
        f"       {program} completion SHELL      print a script that completes commands in bash or zsh",
        f"       {program} COMMAND --help        show the options of a command",
    ]
    for title, flags in SECTIONS:
        lines += ["", f"{title} options:"]
        for flag in flags:
            spelled = ", ".join(("-" if len(name) <= 2 or name.isupper() else "--") + name for name in flag.names)  # noqa: PLR2004
            left = f"    {spelled} <{flag.argument}>" if flag.argument else f"    {spelled}"
            lines.append(f"{left:<42} {flag.help}")
    return "\n".join([*lines, ""])


def parse_flags(arguments: Iterable[str]) -> dict[str, Any]:
    """Return the settings of the command line; the last of repeated flags wins. Raises FlagError."""
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
