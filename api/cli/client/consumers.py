"""`jetraft consumer`: lists, shows, creates, changes and pauses consumers, and takes their messages."""

import asyncio
import json
from typing import Annotated, Any, Final

import nats.errors
import typer
from nats.aio.msg import Msg

from jetraft.api.cli.client.connection import CommandConnection, token
from jetraft.api.cli.client.errors import CommandError
from jetraft.api.cli.client.frame import CommandGroup, ConfigOption
from jetraft.api.cli.client.output import confirm
from jetraft.api.cli.client.stored import payload_json, print_message
from jetraft.api.cli.client.stream_fields import one_of, pair, words
from jetraft.api.cli.client.streams import Force, Stream, clean_info, replica_text
from jetraft.api.cli.client.units import (
    UNITS_NS,
    duration_ns,
    from_now,
    integer,
    shown_count,
    shown_duration,
    shown_time,
    size_bytes,
    time_text,
)

GROUP: Final = CommandGroup.of("consumer", "Consumers: list, show, create, change, pause, take messages.")
main: Final = GROUP.main
Consumer = Annotated[str, typer.Argument(metavar="CONSUMER", help="name of the consumer")]

TOKENS_OF_ACK: Final = 9  # $JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<consumer's>.<time>.<pending>

DELIVERIES: Final = {"all", "last", "new", "subject"}
FIELDS: Final = (
    ConfigOption(key="description", flags=("--description",), convert=str, help="text for people"),
    ConfigOption(key="filter", flags=("--filter",), convert=words, many=True, help="subjects, comma-separated"),
    ConfigOption(
        key="deliver", flags=("--deliver",), convert=str, help="all, new, last, subject, 1h, a time, or a sequence"
    ),
    ConfigOption(
        key="ack_policy", flags=("--ack",), convert=one_of("explicit", "all", "none"), help="explicit, all or none"
    ),
    ConfigOption(key="ack_wait", flags=("--wait",), convert=duration_ns, metavar="DURATION", help="time for an ack"),
    ConfigOption(key="max_deliver", flags=("--max-deliver",), convert=integer, metavar="N", help="most deliveries"),
    ConfigOption(
        key="max_ack_pending", flags=("--max-pending",), convert=integer, metavar="N", help="most without ack"
    ),
    ConfigOption(key="max_waiting", flags=("--max-waiting",), convert=integer, metavar="N", help="most waiting pulls"),
    ConfigOption(
        key="replay_policy", flags=("--replay",), convert=one_of("instant", "original"), help="instant or original"
    ),
    ConfigOption(
        key="deliver_subject", flags=("--target",), convert=str, metavar="SUBJECT", help="push to this subject"
    ),
    ConfigOption(key="deliver_group", flags=("--deliver-group",), convert=str, help="queue group of the target"),
    ConfigOption(key="headers_only", flags=("--headers-only",), help="deliver no payloads"),
    ConfigOption(key="num_replicas", flags=("--replicas",), convert=integer, metavar="N", help="0: as the stream"),
    ConfigOption(key="mem_storage", flags=("--memory",), help="state in memory"),
    ConfigOption(key="max_batch", flags=("--max-pull-batch",), convert=integer, metavar="N", help="largest pull"),
    ConfigOption(key="max_bytes", flags=("--max-pull-bytes",), convert=size_bytes, metavar="SIZE", help="largest pull"),
    ConfigOption(
        key="inactive_threshold",
        flags=("--inactive-threshold",),
        convert=duration_ns,
        metavar="DURATION",
        help="removed after so long without a client",
    ),
    ConfigOption(
        key="backoff", flags=("--backoff",), convert=duration_ns, metavar="DURATION", many=True, help="redelivery after"
    ),
    ConfigOption(
        key="metadata", flags=("--metadata",), convert=pair, metavar="KEY=VALUE", many=True, help="for programs"
    ),
)


def configured(config: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The configuration with what the options give instead. Raises UsageError."""
    rest = dict(given)
    found = dict(config)
    if "filter" in rest:
        subjects = [each for part in rest.pop("filter") for each in part]
        found.pop("filter_subject", None)
        found.pop("filter_subjects", None)
        found |= {"filter_subject": subjects[0]} if len(subjects) == 1 else {"filter_subjects": subjects}
    if "metadata" in rest:
        rest["metadata"] = (config.get("metadata") or {}) | dict(rest["metadata"])
    if "deliver" in rest:
        found |= start_of(rest.pop("deliver"))
    return found | rest


def start_of(text: str) -> dict[str, Any]:
    """The start of a consumer. Raises UsageError."""
    if text in DELIVERIES:
        return {"deliver_policy": "last_per_subject" if text == "subject" else text}
    if text.isdigit():
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": integer(text)}
    return {"deliver_policy": "by_start_time", "opt_start_time": time_text(text)}


@GROUP.command("ls", "consumer ls ORDERS")
async def ls(
    at: CommandConnection,
    stream: Stream,
    names: Annotated[bool, typer.Option("--names", "-n", help="only names, a line each")] = False,
) -> None:
    """List the consumers of a stream."""
    found = await at.pages(f"CONSUMER.LIST.{token(stream, 'stream')}", "consumers")
    found.sort(key=lambda each: str(each["name"]))
    if names and not at.out.as_json:
        for each in found:
            at.out.line(each["name"])
        return
    at.out.table(
        ("name", "kind", "ack", ">unacked", ">redelivered", ">not delivered", ">waiting", "paused"),
        (
            (
                each["name"],
                "push" if each["config"].get("deliver_subject") else "pull",
                each["config"]["ack_policy"],
                shown_count(each["num_ack_pending"]),
                shown_count(each["num_redelivered"]),
                shown_count(each["num_pending"]),
                shown_count(each.get("num_waiting", 0)),
                "yes" if each.get("paused") else "",
            )
            for each in found
        ),
        [each["name"] for each in found] if names else found,
        empty=f"no consumer: `jetraft consumer add {stream} NAME` creates one",
    )


@GROUP.command("report", "consumer report ORDERS")
async def report(at: CommandConnection, stream: Stream) -> None:
    """Show how far the consumers of a stream are, and their replicas."""
    found = await at.pages(f"CONSUMER.LIST.{token(stream, 'stream')}", "consumers")
    found.sort(key=lambda each: str(each["name"]))
    at.out.table(
        ("name", ">ack floor", ">delivered", ">unacked", ">not delivered", "leader", "replicas"),
        (
            (
                each["name"],
                shown_count(each["ack_floor"]["stream_seq"]),
                shown_count(each["delivered"]["stream_seq"]),
                shown_count(each["num_ack_pending"]),
                shown_count(each["num_pending"]),
                (each.get("cluster") or {}).get("leader") or ("none" if "cluster" in each else "-"),
                ", ".join(replica_text(peer) for peer in (each.get("cluster") or {}).get("replicas") or ()),
            )
            for each in found
        ),
        found,
        empty=f"no consumer: `jetraft consumer add {stream} NAME` creates one",
    )


@GROUP.command("info", "consumer info ORDERS billing")
async def info(at: CommandConnection, stream: Stream, consumer: Consumer) -> None:
    """Show the configuration and the state of a consumer."""
    found = await consumer_info(at, stream, consumer)
    at.out.fields(f"Consumer {consumer} of {stream}", sections(found), clean_info(found))


async def consumer_info(at: CommandConnection, stream: str, consumer: str) -> dict[str, Any]:
    """The info. Raises CommandError."""
    return await at.api(f"CONSUMER.INFO.{token(stream, 'stream')}.{token(consumer, 'consumer')}")


def sections(found: dict[str, Any]) -> dict[str, dict[str, object]]:
    """An info for people."""
    config = found["config"]
    filters = config.get("filter_subjects") or [config.get("filter_subject") or ""]
    configuration: dict[str, object] = {
        "Description": config.get("description"),
        "Filter": ", ".join(filters),
        "Push to": config.get("deliver_subject"),
        "Starts": config["deliver_policy"],
        "Ack": config["ack_policy"],
        "Time for an ack": shown_duration(config.get("ack_wait", 0)),
        "Deliveries at most": shown_count(config.get("max_deliver", -1)),
        "Unacked at most": shown_count(config.get("max_ack_pending", -1)),
        "Replay": config["replay_policy"],
        "Inactive at most": shown_duration(config.get("inactive_threshold"))
        if config.get("inactive_threshold")
        else "",
    }
    state: dict[str, object] = {
        "Last delivered": f"{found['delivered']['stream_seq']:,} (delivery {found['delivered']['consumer_seq']:,})",
        "Ack floor": f"{found['ack_floor']['stream_seq']:,}",
        "Unacked": shown_count(found["num_ack_pending"]),
        "Redelivered": shown_count(found["num_redelivered"]),
        "Not delivered yet": shown_count(found["num_pending"]),
        "Waiting pulls": shown_count(found.get("num_waiting", 0)),
        "Paused until": shown_time(config["pause_until"]) if found.get("paused") else None,
    }
    return {"Configuration": configuration, "State": state}


@GROUP.command("add", "consumer add ORDERS billing --filter orders.eu.new --wait 1m", fields=FIELDS)
async def add(at: CommandConnection, stream: Stream, consumer: Consumer, config: dict[str, Any] | None = None) -> None:
    """Create a durable consumer; a pull consumer with explicit acks, unless options say otherwise."""
    start = {"ack_policy": "explicit", "deliver_policy": "all", "replay_policy": "instant"}
    wanted = configured(start, config or {})
    found = await created(at, stream, consumer, wanted, "create")
    at.out.fields(f"created consumer {consumer} of {stream}", sections(found), clean_info(found))


async def created(
    at: CommandConnection, stream: str, consumer: str, config: dict[str, Any], action: str
) -> dict[str, Any]:
    """Create or update it; returns its info. Raises CommandError."""
    named = config | {"name": token(consumer, "consumer"), "durable_name": consumer}
    subject = f"CONSUMER.CREATE.{token(stream, 'stream')}.{consumer}"
    return await at.api(subject, {"stream_name": stream, "config": named, "action": action})


@GROUP.command("edit", "consumer edit ORDERS billing --max-pending 100 --force", fields=FIELDS)
async def edit(
    at: CommandConnection,
    stream: Stream,
    consumer: Consumer,
    force: Force = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Change a consumer; shows what changes and asks first."""
    now = (await consumer_info(at, stream, consumer))["config"]
    wanted = configured(now, config or {})
    keys = sorted(now.keys() | wanted.keys())
    changes = {key: [now.get(key), wanted.get(key)] for key in keys if now.get(key) != wanted.get(key)}
    if not changes:
        at.out.line(f"consumer {consumer} is as it should be, nothing to change", {"changes": {}})
        return
    if not at.out.as_json:
        for key, (before, after) in changes.items():
            at.out.line(f"{key}: {json.dumps(before)} -> {json.dumps(after)}")
    confirm(f"Change consumer {consumer} of {stream}?", force=force)
    found = await created(at, stream, consumer, wanted, "update")
    at.out.line(f"changed consumer {consumer} of {stream}", clean_info(found))


@GROUP.command("rm", "consumer rm ORDERS billing --force")
async def rm(at: CommandConnection, stream: Stream, consumer: Consumer, force: Force = False) -> None:
    """Delete a consumer; the stream keeps its messages, unless only consumers kept them."""
    await consumer_info(at, stream, consumer)
    confirm(f"Delete consumer {consumer} of {stream}?", force=force)
    await at.api(f"CONSUMER.DELETE.{stream}.{consumer}")
    at.out.line(f"deleted consumer {consumer} of {stream}", {"stream": stream, "name": consumer, "deleted": True})


@GROUP.command("pause", "consumer pause ORDERS billing 1h --force")
async def pause(
    at: CommandConnection,
    stream: Stream,
    consumer: Consumer,
    until: Annotated[str, typer.Argument(metavar="UNTIL", help="a duration such as 1h, or a time (RFC 3339)")],
    force: Force = False,
) -> None:
    """Deliver nothing until a time."""
    moment = until if "T" in until else from_now(duration_ns(until))
    await consumer_info(at, stream, consumer)
    confirm(f"Pause consumer {consumer} of {stream} until {moment}?", force=force)
    found = await at.api(f"CONSUMER.PAUSE.{stream}.{consumer}", {"pause_until": moment})
    at.out.line(f"paused consumer {consumer} until {shown_time(found['pause_until'])}", clean_info(found))


@GROUP.command("resume", "consumer resume ORDERS billing")
async def resume(at: CommandConnection, stream: Stream, consumer: Consumer) -> None:
    """Deliver again."""
    await consumer_info(at, stream, consumer)
    found = await at.api(f"CONSUMER.PAUSE.{stream}.{consumer}")
    at.out.line(f"resumed consumer {consumer} of {stream}", clean_info(found))


@GROUP.command("reset", "consumer reset ORDERS billing --force", "consumer reset ORDERS billing --seq 1000 --force")
async def reset(
    at: CommandConnection,
    stream: Stream,
    consumer: Consumer,
    seq: Annotated[int | None, typer.Option("--seq", min=1, help="deliver from this sequence on")] = None,
    force: Force = False,
) -> None:
    """Deliver again from the ack floor on, or from a sequence; acks that are on their way are void."""
    await consumer_info(at, stream, consumer)
    confirm(f"Reset consumer {consumer} of {stream}?", force=force)
    found = await at.api(f"CONSUMER.RESET.{stream}.{consumer}", {} if seq is None else {"seq": seq})
    at.out.line(f"reset consumer {consumer} of {stream} to {found.get('reset_seq')}", clean_info(found))


@GROUP.command("next", "consumer next ORDERS billing --count 10 --ack", "consumer next ORDERS billing --no-ack --json")
async def take(
    at: CommandConnection,
    stream: Stream,
    consumer: Consumer,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="at most so many")] = 1,
    ack: Annotated[bool, typer.Option("--ack/--no-ack", help="acknowledge what was printed")] = True,
    wait: Annotated[str, typer.Option("--wait", metavar="DURATION", help="how long to wait for a message")] = "2s",
) -> None:
    """Take messages of a pull consumer, print them, and acknowledge them."""
    wait_ns = duration_ns(wait)
    if (await consumer_info(at, stream, consumer))["config"].get("deliver_subject"):
        raise CommandError(
            f"{consumer} is a push consumer: `jetraft sub` its target, or `jetraft consumer add` a pull one"
        )
    inbox = at.nc.new_inbox()
    found = await at.nc.subscribe(inbox)
    body = {"batch": count, "expires": wait_ns or UNITS_NS["ms"]}
    await at.nc.publish(f"{at.login.api}.CONSUMER.MSG.NEXT.{stream}.{consumer}", json.dumps(body).encode(), inbox)
    taken = 0
    while taken < count:
        try:
            message = await at.unless_refused(found.next_msg(timeout=wait_ns / 1e9 + at.timeout_s))
        except (nats.errors.TimeoutError, TimeoutError):
            break
        if not message.reply:  # a status: no more messages, or why not
            check_status(message)
            break
        print_message(at.out, delivery_json(message), series=True)
        taken += 1
        if ack:
            await at.request(message.reply, b"+ACK")
    await asyncio.sleep(0)
    if not taken and not at.out.as_json:
        at.out.line("no message")


def check_status(message: Msg) -> None:
    """Raises CommandError for a status that is no end of a pull."""
    status = (message.headers or {}).get("Status", "")
    if status not in ("404", "408"):
        text = (message.headers or {}).get("Description", "the pull ended")
        raise CommandError(f"{text} ({status}): `jetraft consumer info` shows the limits of the consumer")


def delivery_json(message: Msg) -> dict[str, Any]:
    """The stable form of a delivery."""
    tokens = message.reply.split(".")
    if len(tokens) > TOKENS_OF_ACK:  # with a domain and an account in front
        tokens = [*tokens[:2], *tokens[4:]]
    numbers = {}
    if len(tokens) >= TOKENS_OF_ACK and tokens[1] == "ACK":
        numbers = {"stream": tokens[2], "consumer": tokens[3]} | {
            name: int(tokens[place]) if tokens[place].isdigit() else 0
            for name, place in (("deliveries", 4), ("seq", 5), ("pending", 8))
        }
    headers = {name: [value] for name, value in (message.headers or {}).items()}
    return numbers | {"subject": message.subject, "headers": headers} | payload_json(message.data)
