"""`jetraft pub`, `sub`, `req` and `reply`: messages on subjects, as any client sends and receives them."""

import asyncio
import sys
from typing import Annotated, Any, Final

import nats.errors
import typer
from nats.aio.msg import Msg

from jetraft.api.cli.client.connection import CommandConnection, parsed, subject_text
from jetraft.api.cli.client.consumers import delivery_json
from jetraft.api.cli.client.errors import AnsweredError, CommandError, UsageError
from jetraft.api.cli.client.frame import CommandGroup
from jetraft.api.cli.client.output import clean
from jetraft.api.cli.client.stored import print_message
from jetraft.api.cli.client.units import duration_ns

PUB: Final = CommandGroup.of("pub", "Publish a message.")
SUB: Final = CommandGroup.of("sub", "Print messages of subjects.")
REQ: Final = CommandGroup.of("req", "Send a request, print its answers.")
REPLY: Final = CommandGroup.of("reply", "Answer requests.")
GROUPS: Final = {group.name: group for group in (PUB, SUB, REQ, REPLY)}
PENDING_MESSAGES: Final = 65_536  # of a subscription; nats-py's own bound is half a million
PENDING_BYTES: Final = 64 << 20
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="subject of the message")]
Body = Annotated[str | None, typer.Argument(metavar="[BODY]", help="payload; - or nothing reads the standard input")]
Header = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME:VALUE", help="a header; may be repeated")
]
Count = Annotated[int | None, typer.Option("--count", "-n", min=1, help="end after so many")]


def main(name: str, words: Any) -> int:
    """Run one of them; returns the exit status."""
    return GROUPS[name].main(name, words)


def payload_of(body: str | None) -> bytes:
    """The payload. Raises CommandError where a person would have to type it."""
    if body is not None and body != "-":
        return body.encode("utf-8", "surrogateescape")
    if sys.stdin.isatty():
        raise UsageError("the payload is missing: give it behind the subject, or pipe it in")
    return sys.stdin.buffer.read()


def headers_of(given: list[str] | None) -> dict[str, str] | None:
    """The headers. Raises UsageError."""
    found = {}
    for each in given or ():
        name, colon, value = each.partition(":")
        if not colon or not name.strip() or "\r" in each or "\n" in each:
            raise UsageError(f"--header {clean(each)!r}: write NAME:VALUE")
        found[name.strip()] = value.strip()
    return found or None


@PUB.command("pub", "pub orders.new '{\"id\": 1}'", "pub orders.new '{\"id\": 1}' --jetstream -H Nats-Msg-Id:1")
async def pub(
    at: CommandConnection,
    subject: Subject,
    body: Body = None,
    header: Header = None,
    jetstream: Annotated[bool, typer.Option("--jetstream", "-J", help="wait until a stream has it")] = False,
    reply: Annotated[str | None, typer.Option("--reply", help="subject for answers")] = None,
) -> None:
    """Publish a message; with --jetstream it is durable in a stream when the command ends."""
    subject_text(subject)
    payload, headers = payload_of(body), headers_of(header)
    if jetstream:
        answer = parsed((await at.request(subject, payload, headers)).data)
        if isinstance(answer.get("error"), dict):
            raise AnsweredError(answer["error"])
        again = ", a duplicate" if answer.get("duplicate") else ""
        at.out.line(f"stored in {answer.get('stream')} as {answer.get('seq')}{again}", answer)
        return
    try:
        await at.nc.publish(subject, payload, reply or "", headers=headers)
        await at.unless_refused(flushed(at))
    except (nats.errors.Error, ValueError) as error:
        raise CommandError(clean(str(error)).removeprefix("nats: ")) from None
    at.out.line(f"published {len(payload)} bytes to {subject}", {"subject": subject, "bytes": len(payload)})


async def flushed(at: CommandConnection) -> None:
    """The server has taken what was sent, and has said what it refuses."""
    await at.nc.flush(max(1, round(at.timeout_s)))
    await asyncio.sleep(0)


@SUB.command("sub", "sub 'orders.>' --count 10", "sub 'orders.>' --queue workers --json")
async def sub(
    at: CommandConnection,
    subject: Annotated[list[str], typer.Argument(metavar="SUBJECT...", help="subjects, with wildcards")],
    queue: Annotated[str, typer.Option("--queue", help="share the messages with others of this group")] = "",
    count: Count = None,
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="DURATION", help="end after so long without one")
    ] = None,
) -> None:
    """Print messages as they come, until it is interrupted."""
    wait_s = duration_ns(wait) / 1e9 if wait else None
    arrived: asyncio.Queue[Msg] = asyncio.Queue(PENDING_MESSAGES)

    async def take(message: Msg) -> None:
        await arrived.put(message)

    for each in subject:
        await at.nc.subscribe(
            subject_text(each),
            queue,
            cb=take,
            pending_msgs_limit=PENDING_MESSAGES,
            pending_bytes_limit=PENDING_BYTES,
        )
    await at.unless_refused(flushed(at))
    shown = 0
    while count is None or shown < count:
        try:
            async with asyncio.timeout(wait_s):
                message = await at.unless_refused(arrived.get())
        except TimeoutError:
            break
        print_message(at.out, message_json(message), series=True)
        shown += 1


def message_json(message: Msg) -> dict[str, Any]:
    """The stable form of a message."""
    found = delivery_json(message)
    return found | ({"reply": message.reply} if message.reply and "seq" not in found else {})


@REQ.command("req", "req help.me 'the payload'", "req '$SRV.PING' '' --replies 0 --timeout 1s")
async def req(
    at: CommandConnection,
    subject: Subject,
    body: Body = None,
    header: Header = None,
    replies: Annotated[int, typer.Option("--replies", min=0, help="answers to wait for, 0: all within --timeout")] = 1,
) -> None:
    """Send a request and print its answers."""
    subject_text(subject)
    payload, headers = payload_of(body), headers_of(header)
    if replies == 1:
        print_message(at.out, message_json(await at.request(subject, payload, headers)), series=True)
        return
    inbox = at.nc.new_inbox()
    found = await at.nc.subscribe(inbox)
    await at.nc.publish(subject, payload, inbox, headers=headers)
    shown = 0
    while not replies or shown < replies:
        try:
            message = await at.unless_refused(found.next_msg(timeout=at.timeout_s))
        except (nats.errors.TimeoutError, TimeoutError):
            break
        if (message.headers or {}).get("Status") == "503":
            break
        print_message(at.out, message_json(message), series=True)
        shown += 1
    if shown < max(replies, 1):
        raise CommandError(f"{shown} answers on {clean(subject)} within {at.timeout_s:g}s: --timeout waits longer")


@REPLY.command("reply", "reply help.me 'this is the answer' --count 1", "reply help.me --echo --queue workers")
async def reply(
    at: CommandConnection,
    subject: Subject,
    body: Annotated[str, typer.Argument(metavar="[BODY]", help="payload of each answer")] = "",
    echo: Annotated[bool, typer.Option("--echo", help="answer with the payload of the request")] = False,
    queue: Annotated[str, typer.Option("--queue", help="share the requests with others of this group")] = "",
    count: Count = None,
) -> None:
    """Answer requests and print them, until it is interrupted."""
    found = await at.nc.subscribe(subject_text(subject), queue)
    await at.unless_refused(flushed(at))
    answered = 0
    while count is None or answered < count:
        message = await at.unless_refused(found.next_msg(timeout=None))
        print_message(at.out, message_json(message), series=True)
        if message.reply:
            await message.respond(message.data if echo else body.encode("utf-8", "surrogateescape"))
        answered += 1
    await at.unless_refused(flushed(at))
