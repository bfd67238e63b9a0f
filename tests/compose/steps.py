"""What `make compose-check` does to the cluster, one function a step; each returns what the table says of it."""

import json
import re
import time
from collections.abc import Callable
from typing import Any, Final

import attrs

from tests.compose.engine import (
    BUILD_S,
    NEXT_SECRET,
    NODES,
    SECRET,
    CheckFailedError,
    ComposeCluster,
    answers,
    compose_words,
    run,
    wait_until,
)
from tests.compose.load import STREAM, SUBJECT, Load
from tests.harness.ports import HOST
from tests.harness.raw import RawClient
from tests.harness.server import ROOT

BROKEN_WAIT_S: Final = 10.0
SPARK_BYTES_MAX: Final = 1_200_000_000
AWAY_S: Final = 4.0  # of the node that is cut off: longer than a link waits for a sign
MORE: Final = 500  # acknowledgements that follow each step
BATCH: Final = 1000
FULL_MIB: Final = 256
FILL_BYTES: Final = 200_000
PROBE: Final = (
    "import socket,sys\n"
    "for place in sys.argv[1:]:\n"
    "    host, _, port = place.rpartition(':')\n"
    "    try:\n"
    "        socket.create_connection((host, int(port)), 2).close(); print(place, 'open')\n"
    "    except OSError:\n"
    "        print(place, 'closed')\n"
)


@attrs.define(eq=False)
class Check:
    """The cluster and the client that publishes throughout."""

    cluster: ComposeCluster
    load: Load
    without_spark: bool = False


Step = Callable[[Check], str]


def leader(check: Check) -> str:
    """The node that leads the stream."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        for port in check.cluster.ports.values():
            if not answers(port):
                continue
            with RawClient((HOST, port)) as client:
                found = (client.api(f"STREAM.INFO.{STREAM}").get("cluster") or {}).get("leader")
                if found in NODES:
                    return str(found)
    raise CheckFailedError("the stream has no leader")


def publish(check: Check) -> str:
    """Nothing is done to the cluster."""
    check.load.wait_for_more(4 * MORE)
    return "one seed, advertised addresses for the rest"


def restart_the_seed(check: Check) -> str:
    """The node that the client knows is restarted: it goes to one that it was told of."""
    check.cluster.compose("restart", "n1")
    check.cluster.wait_ready()
    return "n1, SIGTERM"


def cut_off(check: Check) -> str:
    """The leader's node loses the mesh for a while; its clients stay."""
    node, network = leader(check), f"{check.cluster.project}_mesh"
    container = check.cluster.container(node)
    run(["docker", "network", "disconnect", network, container])
    time.sleep(AWAY_S)
    run(["docker", "network", "connect", "--alias", f"{node}.mesh", network, container])
    check.cluster.wait_ready()
    return f"{node}, the leader, for {AWAY_S:.0f} s"


def kill(check: Check) -> str:
    """SIGKILL of the leader's node."""
    node = leader(check)
    run(["docker", "kill", check.cluster.container(node)])
    check.load.wait_for_more(MORE)
    check.cluster.compose("start", node)
    check.cluster.wait_ready()
    return f"{node}, the leader, SIGKILL"


def upgrade(check: Check) -> str:
    """Another image, node after node."""
    before = {node: check.cluster.container(node) for node in NODES}
    check.cluster.image = check.cluster.next_image("next")
    check.cluster.upgrade()
    if any(check.cluster.container(node) == container for node, container in before.items()):
        raise CheckFailedError("a node still has its old image")
    return "deploy/rolling-upgrade.sh, three new containers"


def upgrade_and_back(check: Check) -> str:
    """An image that ends at its start stops the upgrade at the first node; the next upgrade repairs that node first."""
    good, others = check.cluster.image, [check.cluster.container(node) for node in NODES[1:]]
    check.cluster.image = check.cluster.next_image("broken", 'ENTRYPOINT ["false"]')
    try:
        check.cluster.upgrade(BROKEN_WAIT_S)
    except CheckFailedError as error:
        if "n1 is not current" not in str(error):
            raise
    else:
        raise CheckFailedError("an upgrade to an image that ends at its start has succeeded")
    if others != [check.cluster.container(node) for node in NODES[1:]]:
        raise CheckFailedError("the upgrade went on after a node that is not current")
    check.load.wait_for_more(MORE)
    check.cluster.image = good
    told = check.cluster.upgrade()
    if "n1 comes first" not in told:
        raise CheckFailedError(f"the broken node did not come first: {told}")
    return "n1 ends at its start, n2 and n3 are left alone; the next upgrade repairs n1"


def leaders_in_the_log(check: Check) -> str:
    """What docker logs says of the failovers above."""
    told = "".join(check.cluster.compose("logs", "--no-color", node) for node in NODES)
    for text in (f"stream $G > {STREAM}: n", "the meta group: n"):
        if text not in told:
            raise CheckFailedError(f"no log says: {text}")
    return "each node names the leader of the meta group, leaders name their streams"


def change_secret(check: Check) -> str:
    """Two secrets are accepted while the nodes go from one to the other."""
    rounds = ((SECRET, NEXT_SECRET), (NEXT_SECRET, SECRET), (NEXT_SECRET,))
    for secrets in rounds:
        check.cluster.write_secrets(*secrets)
        for node in NODES:
            check.cluster.compose("restart", node)
            check.cluster.wait_ready()
    return "three rounds of restarts, node after node"


def look_for_secrets(check: Check) -> str:
    """Neither secret is in what the engine, the process table or the log shows."""
    for node in NODES:
        container = check.cluster.container(node)
        shown = run(["docker", "inspect", container]) + run(["docker", "top", container])
        shown += run(["docker", "logs", container]) + json.dumps(check.cluster.page(node, "/varz"))
        if "hidden" in shown:
            raise CheckFailedError(f"{node} shows the secret")
    return "not in inspect, top, logs, /varz"


def look_at_networks(check: Check) -> str:
    """From the clients' network only the port for clients is open; the host sees no other one either."""
    places = [f"{node}:{port}" for node in NODES for port in (4222, 6222, 8222)]
    image, network = check.cluster.image, f"{check.cluster.project}_clients"
    words = ["docker", "run", "--rm", "--network", network, "--entrypoint", "python", image, "-c", PROBE]
    found = dict(line.rsplit(" ", 1) for line in run([*words, *places]).splitlines())
    expected = {place: "open" if place.endswith(":4222") else "closed" for place in places}
    if found != expected:
        raise CheckFailedError(f"ports on the clients' network: {found}")
    return "clients reach 4222 and neither 6222 nor 8222"


def spark(check: Check) -> str:
    """The job of the profile counts what is published."""
    check.cluster.variables["JETSTREAM_STREAM"] = STREAM
    run(["make", "up-spark"], environment=check.cluster.environment, timeout_s=BUILD_S)
    container = check.cluster.compose("--profile", "spark", "ps", "-q", "spark").strip()

    def counts() -> bool:
        return any(SUBJECT in line for line in run(["docker", "logs", container]).splitlines())

    wait_until(counts, "the job of the profile `spark` shows the subject", 300.0)
    check.cluster.compose("--profile", "spark", "stop", "spark")
    size = int(run(["docker", "image", "inspect", "--format", "{{.Size}}", check.cluster.spark_image]))
    if size > SPARK_BYTES_MAX:
        raise CheckFailedError(f"the image has {size:,} bytes")
    return f"make up-spark: the subject is counted; the image has {size // 1_000_000:,} MB"


def commands_of_the_page(check: Check) -> str:
    """Every command of docs/containers.md, in its order, but for those that stand in NOT_RUN."""
    commands = [line for line in documented() if not any(line.startswith(start) for start in NOT_RUN)]
    compose = " ".join(compose_words() or [])
    for command in commands:
        if check.without_spark and "spark" in command:
            continue
        words = ["/bin/sh", "-c", command.replace("docker compose", compose)]
        run(words, environment=check.cluster.environment, timeout_s=BUILD_S)
        if command == "make down":
            check.cluster.up()
    return f"{len(commands)} commands"


def documented() -> list[str]:
    """The commands of docs/containers.md: in indented lines, and in the code that begins with the name of a program."""
    text = (ROOT / "docs" / "containers.md").read_text(encoding="utf-8")
    found = re.findall(r"^    (\S.*?)(?:  +#.*)?$|`((?:make|docker|(?:\w+=\S+ )+make) [^`]+)`", text, re.MULTILINE)
    return [each for each in dict.fromkeys(first or second for first, second in found) if each != "docker compose"]


def read_back(check: Check) -> str:
    """Each node has what was acknowledged, where the acknowledgement said, and nothing else."""
    check.load.stop()
    acknowledged = {seq: name for name, seq in check.load.acknowledged.items()}
    if len(acknowledged) != len(check.load.acknowledged):
        raise CheckFailedError("two messages were acknowledged with one sequence")
    for node, port in check.cluster.ports.items():
        held = stored(port)
        lost = [seq for seq, name in acknowledged.items() if held.get(seq) != name]
        if lost:
            raise CheckFailedError(f"{node}: {len(lost)} acknowledged messages are not there, the first is {lost[0]}")
        if len(held) != len(acknowledged):
            raise CheckFailedError(f"{node}: {len(held)} messages, {len(acknowledged)} were acknowledged")
    load = check.load
    return f"{len(acknowledged):,} messages on each node; none lost, doubled or misplaced; {load.retried} sent again"


def stored(port: int) -> dict[int, str]:
    """All messages of the stream, by sequence, from the replica of the node that is asked (decision 11)."""
    found: dict[int, str] = {}
    with RawClient((HOST, port)) as client:
        last = client.api(f"STREAM.INFO.{STREAM}")["state"]["last_seq"]
        while max(found, default=0) < last:
            body = json.dumps({"seq": max(found, default=0) + 1, "batch": BATCH}).encode()
            answer = client.request(f"$JS.API.DIRECT.GET.{STREAM}", body, replies=BATCH + 1, until_status=True)
            for message in answer:
                fields = dict(message.headers)
                if "Nats-Sequence" in fields:
                    found[int(fields["Nats-Sequence"])] = message.payload.decode()
    return found


def fill_memory(check: Check) -> str:
    """With 256 MiB for each node a stream in memory is refused more before the kernel ends a node."""
    check.cluster.variables["NODE_MEMORY"] = f"{FULL_MIB}m"
    check.cluster.up()
    taken = 0
    refused: dict[str, Any] = {}
    with RawClient((HOST, check.cluster.ports["n1"])) as client:
        created = client.api(
            "STREAM.CREATE.MEM", {"name": "MEM", "subjects": ["mem"], "storage": "memory", "num_replicas": 3}
        )
        if "error" in created:
            raise CheckFailedError(f"a stream in memory: {created['error']}")
        while not refused and taken < FULL_MIB << 20:
            answer = json.loads(client.request("mem", bytes(FILL_BYTES))[0].payload or b"{}")
            refused = answer.get("error") or {}
            taken += FILL_BYTES
        if refused.get("err_code", 0) not in {10023, 10047}:
            raise CheckFailedError(f"a full memory stream was refused with {refused}")
        purged = client.api("STREAM.PURGE.MEM")
        wait_until(lambda: "seq" in client.acknowledged("mem", b"again"), "messages are taken again")
    for node in NODES:
        state = check.cluster.inspect(node)
        if state["State"]["OOMKilled"] or state["RestartCount"]:
            raise CheckFailedError(f"{node} was ended by the kernel")
    return f"{taken >> 20} MiB taken, then {refused['err_code']}; purged ({purged.get('purged')}), taken again"


NOT_RUN: Final = {
    "make compose-check": "this",
    "make requirements": "asks a package index",
    "make wheelhouse": "asks a package index",
    "debootstrap": "asks Debian's archive; the base of the images was made so, where no registry is reached",
    "tar -C base": "the same",
    "make image BASE=": "the images were built first, with the BASE and NO_INDEX that are remembered",
    "BASE=... make image": "has a name to be filled in",
    "JETSTREAM_STREAM=NAME": "the step with Spark starts the job like this",
    "docker buildx": "needs a registry, and says so",
    "docker inspect": "the step on the secret runs it",
}
LOADED: Final[tuple[tuple[str, Step], ...]] = (
    ("publish", publish),
    ("restart the seed's node", restart_the_seed),
    ("a node off the mesh", cut_off),
    ("kill a node", kill),
    ("leaders in the log", leaders_in_the_log),
    ("upgrade", upgrade),
    ("upgrade to a broken image, and back", upgrade_and_back),
    ("another secret", change_secret),
    ("where the secret is seen", look_for_secrets),
    ("what clients can reach", look_at_networks),
    ("Spark", spark),
)
AFTERWARDS: Final[tuple[tuple[str, Step], ...]] = (
    ("read back", read_back),
    (f"{FULL_MIB} MiB of memory", fill_memory),
    ("the commands of docs/containers.md", commands_of_the_page),
)
# The longest time without an acknowledgement that a step may cause, by its name; a step that is not here may cause any.
GAPS_MAX_S: Final[dict[str, float]] = {"a node off the mesh": 3.0}
