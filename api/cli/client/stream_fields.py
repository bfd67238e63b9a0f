"""The options that set the configuration of a stream, and how an info is shown.

Options have the names of the `nats` command line, keys those of the API.
"""

from typing import Any, Final

from jetraft.api.cli.client.errors import UsageError
from jetraft.api.cli.client.frame import ConfigOption
from jetraft.api.cli.client.units import (
    duration_ns,
    integer,
    shown_count,
    shown_duration,
    shown_size,
    shown_time,
    size_bytes,
)

RETENTIONS: Final = {"work": "workqueue", "workq": "workqueue"}
METADATA_HIDDEN: Final = "_nats."


def words(text: str) -> list[str]:
    """The parts of a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def one_of(*allowed: str, also: dict[str, str] | None = None) -> Any:
    """A conversion that takes these words only."""

    def convert(text: str) -> str:
        found = (also or {}).get(text.lower(), text.lower())
        if found not in allowed:
            raise UsageError(f"{text!r}: one of {', '.join(allowed)}")
        return found

    return convert


def pair(text: str) -> tuple[str, str]:
    """KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"{text!r}: write KEY=VALUE")
    return key, value


def origin(text: str) -> dict[str, Any]:
    """The name of a stream that is copied."""
    return {"name": text}


FIELDS: Final = (
    ConfigOption(key="subjects", flags=("--subjects",), convert=words, many=True, help="subjects, comma-separated"),
    ConfigOption(key="description", flags=("--description",), convert=str, help="text for people"),
    ConfigOption(key="storage", flags=("--storage",), convert=one_of("file", "memory"), help="file or memory"),
    ConfigOption(
        key="num_replicas", flags=("--replicas",), convert=integer, metavar="N", help="servers that hold it, 1 to 5"
    ),
    ConfigOption(
        key="retention",
        flags=("--retention",),
        convert=one_of("limits", "interest", "workqueue", also=RETENTIONS),
        help="limits, interest or work",
    ),
    ConfigOption(key="discard", flags=("--discard",), convert=one_of("old", "new"), help="what a full stream gives up"),
    ConfigOption(key="max_msgs", flags=("--max-msgs",), convert=integer, metavar="N", help="most messages"),
    ConfigOption(key="max_bytes", flags=("--max-bytes",), convert=size_bytes, metavar="SIZE", help="most bytes"),
    ConfigOption(
        key="max_age", flags=("--max-age",), convert=duration_ns, metavar="DURATION", help="oldest message: 7d"
    ),
    ConfigOption(
        key="max_msgs_per_subject",
        flags=("--max-msgs-per-subject",),
        convert=integer,
        metavar="N",
        help="most messages of a subject",
    ),
    ConfigOption(
        key="max_msg_size", flags=("--max-msg-size",), convert=size_bytes, metavar="SIZE", help="largest message"
    ),
    ConfigOption(key="max_consumers", flags=("--max-consumers",), convert=integer, metavar="N", help="most consumers"),
    ConfigOption(
        key="duplicate_window",
        flags=("--dupe-window",),
        convert=duration_ns,
        metavar="DURATION",
        help="how long a Nats-Msg-Id is remembered",
    ),
    ConfigOption(key="compression", flags=("--compression",), convert=one_of("none", "s2"), help="none or s2"),
    ConfigOption(key="allow_direct", flags=("--allow-direct",), help="replicas answer reads"),
    ConfigOption(key="allow_rollup_hdrs", flags=("--allow-rollup",), help="a message may replace those before it"),
    ConfigOption(key="allow_msg_ttl", flags=("--allow-msg-ttl",), help="messages may have a time to live of their own"),
    ConfigOption(key="allow_atomic", flags=("--allow-batch",), help="atomic batches"),
    ConfigOption(key="allow_msg_counter", flags=("--allow-counter",), help="messages count"),
    ConfigOption(key="allow_msg_schedules", flags=("--allow-schedules",), help="messages may be scheduled"),
    ConfigOption(key="deny_delete", flags=("--deny-delete",), help="no message can be removed"),
    ConfigOption(key="deny_purge", flags=("--deny-purge",), help="the stream cannot be purged"),
    ConfigOption(key="discard_new_per_subject", flags=("--discard-per-subject",), help="discard=new for each subject"),
    ConfigOption(key="sealed", flags=("--seal",), help="nothing can be changed any more"),
    ConfigOption(key="mirror", flags=("--mirror",), convert=origin, metavar="STREAM", help="a copy of this stream"),
    ConfigOption(
        key="sources", flags=("--source",), convert=origin, metavar="STREAM", many=True, help="copies this one too"
    ),
    ConfigOption(key="placement.cluster", flags=("--cluster",), convert=str, help="cluster of its servers"),
    ConfigOption(key="placement.tags", flags=("--tag",), convert=str, many=True, help="tag of its servers"),
    ConfigOption(
        key="metadata", flags=("--metadata",), convert=pair, metavar="KEY=VALUE", many=True, help="for programs"
    ),
)


def merged(config: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The configuration with what the options give instead."""
    found = config | given
    if "subjects" in given:
        found["subjects"] = [each for part in given["subjects"] for each in part]
    if "metadata" in given:
        found["metadata"] = (config.get("metadata") or {}) | dict(given["metadata"])
    if "placement" in given:
        found["placement"] = (config.get("placement") or {}) | given["placement"]
    return found


def shown_sections(info: dict[str, Any]) -> dict[str, dict[str, object]]:
    """An info for people."""
    config, state = info["config"], info["state"]
    flags = [name.replace("_", " ") for name in sorted(config) if config[name] is True]
    configuration: dict[str, object] = {
        "Description": config.get("description"),
        "Subjects": ", ".join(config.get("subjects") or ()),
        "Mirror of": (config.get("mirror") or {}).get("name"),
        "Sources": ", ".join(each["name"] for each in config.get("sources") or ()),
        "Storage": config["storage"],
        "Replicas": config["num_replicas"],
        "Retention": config["retention"],
        "Discard": config["discard"],
        "Messages at most": shown_count(config["max_msgs"]),
        "Bytes at most": shown_size(config["max_bytes"]),
        "Age at most": shown_duration(config["max_age"]) if config["max_age"] else "unlimited",
        "Per subject at most": shown_count(config.get("max_msgs_per_subject", -1) or -1),
        "Message size at most": shown_size(config.get("max_msg_size", -1)),
        "Consumers at most": shown_count(config.get("max_consumers", -1)),
        "Duplicate window": shown_duration(config.get("duplicate_window", 0)),
        "Compression": config.get("compression", "none"),
        "Also": ", ".join(flags),
        "Placement": _placement(config.get("placement") or {}),
        "Metadata": ", ".join(
            f"{key}={value}"
            for key, value in sorted((config.get("metadata") or {}).items())
            if not key.startswith(METADATA_HIDDEN)
        ),
    }
    return {"Configuration": configuration, "Cluster": _cluster(info), "State": _state(state)}


def _placement(placement: dict[str, Any]) -> str:
    return " ".join([placement.get("cluster", ""), *(placement.get("tags") or ())]).strip()


def _cluster(info: dict[str, Any]) -> dict[str, object]:
    cluster = info.get("cluster") or {}
    found: dict[str, object] = {"Name": cluster.get("name"), "Leader": cluster.get("leader")}
    for peer in cluster.get("replicas") or ():
        health = "offline" if peer.get("offline") else "current" if peer.get("current") else "behind"
        found[f"Replica {peer['name']}"] = f"{health}, {peer.get('lag', 0):,} entries behind"
    return found


def _state(state: dict[str, Any]) -> dict[str, object]:
    found: dict[str, object] = {
        "Messages": shown_count(state["messages"]),
        "Bytes": shown_size(state["bytes"]),
        "First sequence": f"{state['first_seq']:,} at {shown_time(state['first_ts'])}",
        "Last sequence": f"{state['last_seq']:,} at {shown_time(state['last_ts'])}",
        "Deleted messages": shown_count(state["num_deleted"]) if state.get("num_deleted") else None,
        "Lost messages": len((state.get("lost") or {}).get("msgs") or ()) or None,
        "Subjects": shown_count(state.get("num_subjects", 0)),
        "Consumers": state["consumer_count"],
    }
    for subject, count in sorted((state.get("subjects") or {}).items()):
        found[f"Messages of {subject}"] = shown_count(count)
    return found
