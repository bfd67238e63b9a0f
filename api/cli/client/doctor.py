"""`jetraft doctor`: checks a deployment and says, one line each, what is wrong and what to do.

The servers are asked as the system account; the directory and the process of a server are looked at where the command
runs, when it is told which. It changes nothing but a file of its own that it writes, syncs and removes.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import attrs
import typer

from jetraft.api.cli.client.connection import CommandConnection
from jetraft.api.cli.client.errors import CommandError
from jetraft.api.cli.client.frame import CommandGroup
from jetraft.api.cli.client.streams import replica_text
from jetraft.api.cli.client.system_pages import Monitor, ServerPage, system_pages
from jetraft.api.cli.client.units import shown_duration, shown_size
from jetraft.store.model.gotime import parse_time

GROUP: Final = CommandGroup.of("doctor", "Check a deployment.")
main: Final = GROUP.main
CLOCK_NS_MAX: Final = 500_000_000  # stored times and ages are seen by people; leases do not rest on clocks
ACCOUNTS_AT_ONCE: Final = 1024  # of a page of JSZ: nats-server's default
PAGES_MAX: Final = 1024
FULL: Final = 0.9  # of a limit
FREE_MIN: Final = 0.1  # of the file system
FSYNC_MS_MAX: Final = 20.0  # an ack waits for one; SSDs need less than 5 ms, disks about 10 ms
FSYNCS: Final = 20
DAYS_MIN: Final = 30  # of a certificate
DAY_NS: Final = 86_400_000_000_000


@attrs.frozen(kw_only=True)
class Finding:
    """One line of the report."""

    check: str
    ok: bool
    text: str
    advice: str = ""


@GROUP.command("doctor", "doctor --context system", "doctor --store-dir /var/lib/jetraft --pid 4711 --json")
async def doctor(
    at: CommandConnection,
    store_dir: Annotated[
        Path | None, typer.Option("--store-dir", help="store directory of a server on this machine")
    ] = None,
    pid: Annotated[int | None, typer.Option("--pid", min=1, help="process id of a server on this machine")] = None,
    monitor: Monitor = None,
) -> int:
    """Check servers, streams, clocks, versions, certificates and limits; exit status 1 when something is wrong."""
    stats = await system_pages(at, "", monitor=monitor)
    pages = {page: await system_pages(at, page, monitor=monitor) for page in ("VARZ", "HEALTHZ")}
    jetstream = await jetstream_pages(at, monitor)
    found = [
        *clocks(stats),
        *versions(pages["VARZ"]),
        *healths(pages["HEALTHZ"]),
        *drains(pages["VARZ"]),
        *certificates(pages["VARZ"]),
        *limits(pages["VARZ"]),
        *meta_group(jetstream),
        *streams(jetstream),
        *(directory(store_dir) if store_dir else ()),
        *(process(pid) if pid else ()),
    ]
    if at.out.as_json:
        at.out.json([attrs.asdict(each) for each in found])
    else:
        for each in found:
            at.out.line(
                f"{'ok  ' if each.ok else 'FAIL'} {each.check}: {each.text}"
                + (f": {each.advice}" if each.advice else "")
            )
    return int(not all(each.ok for each in found))


async def jetstream_pages(at: CommandConnection, monitor: str | None) -> list[ServerPage]:
    """JetStream of each server that has it, so many accounts a page. Raises CommandError.

    Of a server with more accounts there are several pages, in turn: one that comes or goes meanwhile may be missed.
    """
    found: list[ServerPage] = []
    unfinished: set[str] = set()
    for number in range(PAGES_MAX):
        detail = {"accounts": True, "streams": True, "offset": number * ACCOUNTS_AT_ONCE, "limit": ACCOUNTS_AT_ONCE}
        pages = [each for each in await system_pages(at, "JSZ", detail, monitor) if not each.data.get("disabled")]
        if silent := sorted(unfinished - {each.name for each in pages}):
            names = ", ".join(silent)
            raise CommandError(f"{names}: more accounts than were told, and no further answer: raise --timeout")
        found += pages
        unfinished = {each.name for each in pages if len(each.data.get("account_details") or ()) >= ACCOUNTS_AT_ONCE}
        if not unfinished:
            return found
    raise CommandError(f"{', '.join(sorted(unfinished))}: more than {PAGES_MAX * ACCOUNTS_AT_ONCE:,} accounts")


def clocks(stats: list[ServerPage]) -> Iterator[Finding]:
    """Each server's clock against this machine's; the answer was written between asking and hearing."""
    for each in stats:
        told_ns = parse_time(str(each.server.get("time", "")))
        if told_ns is None:
            continue
        early_ns = each.asked_at_s * 1e9 - told_ns
        late_ns = told_ns - (each.asked_at_s + each.rtt_s) * 1e9
        off_ns = max(early_ns, late_ns, 0)
        ok = off_ns <= CLOCK_NS_MAX
        yield Finding(
            check=f"clock of {each.name}",
            ok=ok,
            text="agrees with this machine" if ok else f"differs from this machine by {shown_duration(off_ns)}",
            advice="" if ok else "run chrony or systemd-timesyncd on both",
        )


def versions(pages: list[ServerPage]) -> Iterator[Finding]:
    """All servers run one version."""
    found: dict[str, list[str]] = {}
    for each in pages:
        found.setdefault(str(each.data.get("jetraft_version") or each.data.get("version")), []).append(each.name)
    text = "; ".join(f"{version} on {', '.join(names)}" for version, names in sorted(found.items()))
    ok = len(found) == 1
    yield Finding(check="versions", ok=ok, text=text, advice="" if ok else "finish the upgrade (docs/operations.md)")


def healths(pages: list[ServerPage]) -> Iterator[Finding]:
    """Each server's report of itself."""
    for each in pages:
        ok = each.data.get("status") == "ok"
        text = "ok" if ok else str(each.data.get("error") or each.data.get("status"))
        advice = "" if ok else f"read the log of {each.name}; `jetraft stream report` shows what is behind"
        yield Finding(check=f"health of {each.name}", ok=ok, text=text, advice=advice)


def drains(pages: list[ServerPage]) -> Iterator[Finding]:
    """Servers that an operator has drained, perhaps a while ago."""
    for each in pages:
        if (each.data.get("jetraft") or {}).get("drained"):
            advice = f"when its maintenance is over: `jetraft server drain {each.name} --end`"
            text = "other servers lead what it could"
            yield Finding(check=f"drain of {each.name}", ok=False, text=text, advice=advice)


def certificates(pages: list[ServerPage]) -> Iterator[Finding]:
    """How long certificates of servers are good."""
    for each in pages:
        for place, block in (
            ("clients", each.data),
            *((name, each.data.get(name) or {}) for name in ("cluster", "leaf")),
        ):
            end_ns = parse_time(str(block.get("tls_cert_not_after", "")))
            if end_ns is None or end_ns <= 0:
                continue
            days = (end_ns - time.time_ns()) // DAY_NS
            ok = days >= DAYS_MIN
            text = f"good for {days} days" if days >= 0 else f"expired {-days} days ago"
            advice = "" if ok else "replace its files and reload the server (jetraft -sl reload)"
            yield Finding(check=f"certificate of {each.name} for {place}", ok=ok, text=text, advice=advice)


def limits(pages: list[ServerPage]) -> Iterator[Finding]:
    """Resources that are nearly used up on each server."""
    for each in pages:
        jetstream = each.data.get("jetstream") or {}
        config, stats = jetstream.get("config") or {}, jetstream.get("stats") or {}
        for what, used, bound, key in (
            ("connections", each.data.get("connections"), each.data.get("max_connections"), "max_connections"),
            ("storage", stats.get("storage"), config.get("max_storage"), "max_file_store, or store less"),
            ("memory of streams", stats.get("memory"), config.get("max_memory"), "max_mem_store, or store less"),
        ):
            if isinstance(used, int) and isinstance(bound, int) and bound > 0 and used >= bound * FULL:
                text = f"{used / bound:.0%} of {what} are used"
                yield Finding(check=f"limits of {each.name}", ok=False, text=text, advice=f"raise {key}")


def meta_group(pages: list[ServerPage]) -> Iterator[Finding]:
    """Servers agree on the leader of the metadata group, and its members are there."""
    clustered = [each for each in pages if each.data.get("meta_cluster")]
    if not clustered:
        return
    leaders = {each.name: str(each.data["meta_cluster"].get("leader") or "none") for each in clustered}
    agreed = len(set(leaders.values())) == 1 and "none" not in leaders.values()
    text = (
        f"led by {next(iter(leaders.values()))}"
        if agreed
        else ", ".join(f"{name} follows {leader}" for name, leader in leaders.items())
    )
    advice = "" if agreed else "check that all servers reach each other's cluster port, and that a majority runs"
    yield Finding(check="metadata group", ok=agreed, text=text, advice=advice)
    for each in clustered:
        if leaders[each.name] == each.name:
            yield from away("metadata group", each.data["meta_cluster"].get("replicas") or (), "server remove")


def away(check: str, replicas: Any, command: str) -> Iterator[Finding]:
    """Replicas that are offline or behind."""
    wrong = [peer for peer in replicas if peer.get("offline") or not peer.get("current", True)]
    for peer in wrong:
        advice = (
            f"start {peer['name']}, or `jetraft {command}` it if it is lost"
            if peer.get("offline")
            else "wait, or read its log"
        )
        yield Finding(check=check, ok=False, text=f"replica {replica_text(peer)}", advice=advice)


def streams(pages: list[ServerPage]) -> Iterator[Finding]:
    """Streams that no server leads, and replicas that are not current; of all accounts."""
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for each in pages:
        for account in each.data.get("account_details") or ():
            for stream in account.get("stream_detail") or ():
                key = (str(account.get("name")), str(stream.get("name")))
                cluster = stream.get("cluster") or {}
                if key not in seen or cluster.get("leader") == each.name:
                    seen[key] = cluster
    count = len(seen)
    wrong = 0
    for (account, name), cluster in sorted(seen.items()):
        check = f"stream {name} of {account}"
        if cluster.get("replicas") is not None or cluster.get("name"):
            if not cluster.get("leader"):
                wrong += 1
                text = "no leader: it takes no message"
                yield Finding(check=check, ok=False, text=text, advice="start the servers of its other replicas")
            for finding in away(check, cluster.get("replicas") or (), "server remove"):
                wrong += 1
                yield finding
    if not wrong:
        yield Finding(check="streams", ok=True, text=f"{count} with a leader and current replicas")


def directory(path: Path) -> Iterator[Finding]:
    """Room and the time of an fsync where a server keeps its store. Raises CommandError."""
    probe = path / f".doctor.{os.getpid()}"
    try:
        usage = shutil.disk_usage(path)
        taken_ms = sorted(fsync_ms(probe) for _ in range(FSYNCS))[FSYNCS // 2]
    except OSError as error:
        raise CommandError(f"--store-dir {path}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    ok = usage.free >= usage.total * FREE_MIN
    text = f"{shown_size(usage.free)} of {shown_size(usage.total)} are free"
    yield Finding(check="disk", ok=ok, text=text, advice="" if ok else "make room, or lower max_file_store")
    ok = taken_ms <= FSYNC_MS_MAX
    advice = "" if ok else "each ack waits for one: use a disk of its own, an SSD with power-loss protection"
    yield Finding(check="fsync", ok=ok, text=f"{taken_ms:.2f} ms (median of {FSYNCS})", advice=advice)


def fsync_ms(path: Path) -> float:
    """Milliseconds that it takes to append 4 KiB durably."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        started = time.perf_counter()
        os.write(descriptor, bytes(4096))
        os.fsync(descriptor)
        return (time.perf_counter() - started) * 1000
    finally:
        os.close(descriptor)


FILES_MIN: Final = 65_536  # the default of max_connections; blocks and links come on top


def process(pid: int) -> Iterator[Finding]:
    """The limit of open files of a server's process. Raises CommandError."""
    try:
        text = Path(f"/proc/{pid}/limits").read_text(encoding="ascii")
    except OSError as error:
        raise CommandError(f"--pid {pid}: {error.strerror}") from None
    word = next((line.split()[3] for line in text.splitlines() if line.startswith("Max open files")), "0")
    ok = word == "unlimited" or int(word) >= FILES_MIN
    advice = "" if ok else f"start it with LimitNOFILE={FILES_MIN} or more (ulimit -n)"
    yield Finding(check="open files", ok=ok, text=f"at most {word}", advice=advice)
