"""What a site is asked, and the names and types of what it says.

A *place* is a page or an event by its name, whatever way it was asked for: `/jsz?raft=1` and `$SYS.REQ.SERVER.PING.JSZ`
are both JSZ. What every answer and event says of its server is the place SERVER.
"""

import http.client
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import attrs

from tests.conformance.sites import Site
from tests.harness.patience import PATIENCE_S
from tests.harness.ports import HOST
from tests.harness.raw import Message, RawClient
from tests.harness.server import Server

PAGES: Final = """
    /varz /connz?subs=1 /connz?subs=detail&auth=1&state=all /connz?auth=1&acc=A /connz?state=closed&auth=1
    /connz?sort=subs&limit=1000&offset=1 /connz?user=b&auth=1 /connz?acc=A&filter_subject=foo /connz?cid=999999
    /routez /routez?subs=1 /routez?subs=detail /leafz /leafz?subs=1 /leafz?acc=A
    /subsz /subsz?subs=1 /subsz?subs=1&acc=A&offset=1&limit=1000 /subsz?test=foo&subs=1 /subscriptionsz
    /accountz /accountz?acc=A /accountz?acc=B /accountz?acc=SYS /accstatz /accstatz?unused=1
    /jsz /jsz?acc=A /jsz?acc=A&streams=1&consumers=1 /jsz?accounts=1 /jsz?streams=1 /jsz?consumers=1
    /jsz?consumers=1&direct-consumers=1 /jsz?leader-only=1
    /jsz?consumers=1&config=1&raft=1 /jsz?streams=1&raft=1 /jsz?streams=1&stream-leader-only=1
    /jsz?accounts=1&limit=1 /jsz?accounts=1&offset=1
    /healthz /healthz?details=1 /healthz?js-enabled-only=1 /healthz?js-server-only=1 /healthz?js-meta-only=1
    /healthz?account=A&stream=R1 /healthz?account=A&stream=R1&consumer=d /healthz?account=A&stream=NONE&details=1
    /raftz /raftz?acc=A /raftz?group=_meta_ /ipqueuesz /ipqueuesz?all=1 /ipqueuesz?all=1&queues=API
    /gatewayz /gatewayz?accs=1 /gatewayz?gw_name=x&acc_name=A /stacksz /debug/vars /
"""
NAMES: Final = {"subscriptionsz": "SUBSZ", "accstatz": "STATZ", "debug/vars": "EXPVARZ", "": "ROOT"}
OF_SERVER: Final = """
    EXPVARZ PROFILEZ
    VARZ CONNZ CONNZ{"auth":true,"subscriptions_detail":true,"state":2} CONNZ{"acc":"A","filter_subject":"foo"}
    CONNZ{"username":true,"subscriptions":true} SUBSZ SUBSZ{"subscriptions":true} ROUTEZ
    ROUTEZ{"subscriptions":true} ROUTEZ{"subscriptions_detail":true} LEAFZ LEAFZ{"subscriptions":true} GATEWAYZ
    ACCOUNTZ ACCOUNTZ{"account":"A"} ACCOUNTZ{"account":"B"} ACCOUNTZ{"account":"SYS"} JSZ
    JSZ{"accounts":true,"streams":true,"consumer":true,"config":true,"raft":true} JSZ{"account":"A","streams":true}
    JSZ{"consumer":true,"direct_consumer":true} HEALTHZ HEALTHZ{"details":true} HEALTHZ{"account":"A","stream":"R1"}
    STATSZ IDZ RAFTZ RAFTZ{"account":"A"} IPQUEUESZ IPQUEUESZ{"all":true}
"""
OF_ACCOUNT: Final = """
    CONNZ CONNZ{"username":true} SUBSZ LEAFZ LEAFZ{"subscriptions":true} JSZ JSZ{"streams":true,"consumer":true} INFO
    STATZ CONNS
"""
OWN: Final = "SERVER.PING.CONNZ ACCOUNT.PING.CONNZ ACCOUNT.PING.STATZ USER.INFO"
EVENTS: Final = (
    "SERVER.ACCOUNT.B.CONNS", "ACCOUNT.B.SERVER.CONNS", "ACCOUNT.B.CONNECT", "ACCOUNT.B.DISCONNECT",
    "SERVER.ID.CLIENT.AUTH.ERR", "SERVER.ID.STATSZ",
)  # fmt: skip
CLIENT: Final = r"client\.(acc|user|name|lang|ver|issuer_key|name_tag|kind|client_type)"
FACTS: Final = {  # whose values are compared too, by place
    "CONNZ": r"connections\[\]\.(kind|type|reason|authorized_user|account|issuer_key|name_tag)",
    "LEAFZ": r"leafs\[\]\.(name|account|is_spoke)",
    "ACCOUNTZ": r"account_detail\.(account_name|is_system|jetstream_enabled|name_tag)",
    "STATZ": r"account_statz\[\]\.(acc|name|conns|leafnodes)",
    "USERINFO": r"user|account|account_name|user_name",
    "VARZ": r"cluster\.(auth|tls)_timeout|system_account",
    "EVENT.CONNECT": CLIENT,
    "EVENT.CLIENT.AUTH.ERR": rf"{CLIENT}|reason",
    "EVENT.DISCONNECT": rf"{CLIENT}|reason|(sent|received)\.(msgs|bytes)",
}
STATUS: Final = r"\((status|type)\)"
STATUS_ALONE: Final = re.compile(STATUS)  # of pages with a part of the rows, which may be others
Types = dict[str, set[str]]


@attrs.frozen
class Question:
    """One, by what it is called in the output of a test; `where` is its place."""

    text: str
    where: str
    ask: Callable[[Site], Iterator[Any]]


def questions() -> Iterator[Question]:
    """Everything that is asked."""
    for target in PAGES.split():
        name = target[1:].partition("?")[0]
        yield Question(target, NAMES.get(name, name.upper()), partial(pages, target=target))
    for text in OF_SERVER.split():
        name, body = parted(text)
        ask = partial(requested, client="listener", subject=f"SERVER.PING.{name}", body=body)
        yield Question(f"SERVER.PING.{text}", name, ask)
    for text in OF_ACCOUNT.split():
        name, body = parted(text)
        where = "EVENT.SERVER.CONNS" if name == "CONNS" else name
        for account in "AB":
            ask = partial(requested, client="asker", subject=f"ACCOUNT.{account}.{name}", body=body)
            yield Question(f"ACCOUNT.{account}.{text}", where, ask)
    for subject in OWN.split():
        where = subject.replace("USER.INFO", "USERINFO").rpartition(".")[2]
        for client in ("a0", "b1", "asker"):
            if client != "asker" or not subject.startswith("ACCOUNT"):
                ask = partial(requested, client=client, subject=subject, own=True)
                yield Question(f"{subject} by {client}", where, ask)
    for ending in EVENTS:
        where = "EVENT." + ending.replace("ACCOUNT.B.", "").replace("SERVER.ID.", "")
        yield Question(f"event {ending}", where, partial(event, ending=ending))


def parted(text: str) -> tuple[str, str]:
    """The name of a request and its body."""
    name, brace, rest = text.partition("{")
    return name, brace + rest


# --- asking


def pages(site: Site, target: str) -> Iterator[Any]:
    """A page of each node."""
    of_account = re.search(r"[=](A|B|SYS)\b", target)
    target = re.sub(
        r"(acc|account|acc_name)=(A|B|SYS)", lambda found: f"{found[1]}={account_of(site, found[2])}", target
    )
    if site.users is not None:
        for name, user in site.users.items():
            target = re.sub(rf"\buser={name}\b", f"user={user.keys.public}", target)
    for node in site.nodes:
        yield fetched(node, target)
    if site.leaf is not None and of_account is None:
        yield fetched(site.leaf, target)


def fetched(server: Server, target: str) -> dict[str, Any]:
    """A page with its status; of one that is no document the type of its text."""
    connection = http.client.HTTPConnection(HOST, server.http_port, timeout=PATIENCE_S)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        body, kind = response.read(), response.getheader("content-type")
    finally:
        connection.close()
    try:
        return {"(status)": response.status, **json.loads(body)}
    except ValueError:
        return {"(status)": response.status, "(type)": kind}


def account_of(site: Site, name: str) -> str:
    """An account as this site calls it."""
    if name == "SYS":
        return str(site.nodes[0].get("/varz")[1]["system_account"])
    return site.accounts["AB".index(name)]


def requested(site: Site, *, client: str, subject: str, body: str = "", own: bool = False) -> Iterator[Any]:
    """The answers of all nodes, or of one that answers for all."""
    words = subject.split(".")
    if words[0] == "ACCOUNT" and words[1] in "AB":
        words[1] = account_of(site, words[1])
    for name in ("A", "B", "SYS"):
        body = body.replace(f'"{name}"', f'"{account_of(site, name)}"')
    asking = site.clients.get(client) or site.client("sys", client)
    if own and "PING" in words:  # the server of the client is meant
        node = site.nodes[int(client[-1]) % len(site.nodes) if client[-1].isdigit() else 0]
        body = json.dumps({"server_name": node.name, "exact_match": True})
    inbox = asking.new_inbox()
    sid = asking.subscribe(inbox)
    asking.publish("$SYS.REQ." + ".".join(words), body.encode(), reply=inbox)
    for number in range(1 if own or subject.endswith(".INFO") else len(site.nodes)):
        answer = next_message(site, asking, sid, first=number == 0)
        while answer is not None and answered_by(answer) == "leaf":
            answer = next_message(site, asking, sid, first=number == 0)
        if answer is None:
            break
        yield {"(status)": answer.status} if answer.status else json.loads(answer.payload)
    asking.send(f"UNSUB {sid}\r\n".encode())


def answered_by(answer: Message) -> str:
    """The name of the server; a leaf node hears what an account of its hub asks, and may be the first to answer."""
    name: str = json.loads(answer.payload or b"{}").get("server", {}).get("name", "")
    return name


def next_message(site: Site, client: RawClient, sid: str, *, first: bool) -> Message | None:
    """The next answer; None when no other comes."""
    while True:
        found = client.next_event(PATIENCE_S if first else 1.0)
        if found is None:
            return None
        if isinstance(found, Message) and found.sid == sid:
            return found
        if isinstance(found, Message) and client is site.clients["listener"]:
            site.heard.append(found)


def event(site: Site, ending: str) -> Iterator[Any]:
    """The events with this subject until now, one at least."""
    words = ending.split(".")
    words = [account_of(site, word) if word in ("A", "B") else word for word in words]
    pattern = re.escape("$SYS." + ".".join(words)).replace("ID", "[^.]+")
    site.hear(lambda message: re.fullmatch(pattern, message.subject) is not None)
    for message in site.heard:
        if re.fullmatch(pattern, message.subject):
            yield json.loads(message.payload)


# --- comparing

KEYED: Final = re.compile(r"(?!meta$)[a-z][a-z0-9_\-]*|\((status|type)\)")


def shape_of(document: Any, facts: re.Pattern[str], types: Types, path: str = "") -> None:
    """Add the type of every field; elements of lists, and values of maps whose keys are no names of fields, are one."""
    if path:
        types.setdefault(path, set()).add(kind_of(document))
    if path and not isinstance(document, list | dict) and facts.fullmatch(path):
        types.setdefault(f"{path}=", set()).add(str(document))
    if isinstance(document, list):
        for element in document:
            shape_of(element, facts, types, f"{path}[]")
    elif isinstance(document, dict):
        for name, value in document.items():
            word = name if KEYED.fullmatch(name) else "<name>"
            shape_of(value, facts, types, f"{path}.{word}" if path else word)


def kind_of(value: Any) -> str:
    """The JSON type of a value."""
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return "number" if isinstance(value, int | float) else type(value).__name__


def placed(where: str, document: Any) -> Iterator[tuple[str, Any]]:
    """A document and its place, without what is around it in an answer."""
    if isinstance(document, dict) and "server" in document and isinstance(document["server"], dict):
        yield "SERVER", document["server"]
        rest = {name: value for name, value in document.items() if name != "server"}
        inner = next((rest[name] for name in ("data", "statsz") if name in rest), None)
        yield where, rest if inner is None else inner
    else:
        yield where, document


def typed(question: Question, site: Site) -> dict[str, Types]:
    """The types of all fields of the answers to a question, by place."""
    found: dict[str, Types] = {}
    for document in question.ask(site):
        for where, inner in placed(question.where, document):
            facts = re.compile(f"{STATUS}|{FACTS.get(where, STATUS)}")
            is_part = "limit=" in question.text or "filter_subject=" in question.text
            shape_of(inner, STATUS_ALONE if is_part else facts, found.setdefault(where, {}))
    return found


def differing(theirs: dict[str, Types], ours: dict[str, Types]) -> Iterator[str]:
    """`PLACE -path`: missing here, `+`: only here, `~`: of another type."""
    for where in sorted(theirs.keys() | ours.keys()):
        left, right = theirs.get(where, {}), ours.get(where, {})
        for path in sorted(left.keys() | right.keys()):
            parent = path.rpartition(".")[0]
            if parent and (parent in left) is not (parent in right):
                continue
            if path.endswith("[]") and (path[:-2] in left) is not (path[:-2] in right):
                continue
            if left.get(path) != right.get(path):
                sign = "-" if path not in right else "+" if path not in left else "~"
                shown = "" if sign != "~" else f" {'|'.join(sorted(left[path]))} {'|'.join(sorted(right[path]))}"
                yield f"{where} {sign}{path}{shown}"
