"""What the `nats` command and the client libraries ask beyond the plain forms: pages, filters, options of requests."""

from tests.conformance.steps import Call, Scene, Step, consumer, messages, stream

API = "$JS.API"


def ask(name: str, subject: str, payload: object = b"", **options: object) -> Call:
    """A request to the API."""
    return Call(name=name, subject=f"{API}.{subject}", payload=payload, **options)  # type: ignore[arg-type]  # by name


PAGES: tuple[Step, ...] = (
    *(stream(name, [f"{name}.>"]) for name in ("Q", "R", "S", "T")),
    *messages("Q.a", "1", "2"),
    *messages("Q.b", "3"),
    *messages("Q.c.d", "4"),
    ask("info: all subjects", "STREAM.INFO.Q", {"subjects_filter": ">"}),
    ask("info: subjects that match", "STREAM.INFO.Q", {"subjects_filter": "Q.*"}),
    ask("info: subjects that do not", "STREAM.INFO.Q", {"subjects_filter": "X.*"}),
    ask("info: subjects from an offset", "STREAM.INFO.Q", {"subjects_filter": ">", "offset": 1}),
    ask("info: subjects from beyond the end", "STREAM.INFO.Q", {"subjects_filter": ">", "offset": 99}),
    ask("info: subjects from before the start", "STREAM.INFO.Q", {"subjects_filter": ">", "offset": -1}),
    ask("delete 2", "STREAM.MSG.DELETE.Q", {"seq": 2}),
    ask("info: deleted details", "STREAM.INFO.Q", {"deleted_details": True}),
    ask("info: deleted details and subjects", "STREAM.INFO.Q", {"deleted_details": True, "subjects_filter": "Q.a"}),
    ask("names: from an offset", "STREAM.NAMES", {"offset": 2}),
    ask("names: from beyond the end", "STREAM.NAMES", {"offset": 99}),
    ask("names: that have a subject", "STREAM.NAMES", {"subject": "R.x"}),
    ask("names: that overlap a wildcard", "STREAM.NAMES", {"subject": "*.x"}),
    ask("names: of nobody", "STREAM.NAMES", {"subject": "none"}),
    ask("list: from an offset", "STREAM.LIST", {"offset": 3}),
    ask("list: that have a subject", "STREAM.LIST", {"subject": "S.>"}),
    *(consumer("Q", f"c{number}") for number in range(3)),
    ask("consumer names: from an offset", "CONSUMER.NAMES.Q", {"offset": 1}),
    ask("consumer names: from beyond the end", "CONSUMER.NAMES.Q", {"offset": 9}),
    ask("consumer names: negative offset", "CONSUMER.NAMES.Q", {"offset": -1}),
    ask("consumer list: from an offset", "CONSUMER.LIST.Q", {"offset": 2}),
    ask("consumer list: of no stream", "CONSUMER.LIST.none", {"offset": 0}),
    ask("consumer names: of no stream", "CONSUMER.NAMES.none"),
)

GETS: tuple[Step, ...] = (
    stream("Q", ["Q.>"], allow_direct=True),
    *messages("Q.a", "1", "2", "3"),
    *messages("Q.b", "4", "5"),
    Call(name="publish with headers", subject="Q.h", payload=b"6", headers=(("X", "y"), ("X", "z"))),
    ask("get: last by subject", "STREAM.MSG.GET.Q", {"last_by_subj": "Q.a"}),
    ask("get: last by wildcard", "STREAM.MSG.GET.Q", {"last_by_subj": "Q.*"}),
    ask("get: last by subject that has none", "STREAM.MSG.GET.Q", {"last_by_subj": "Q.zzz"}),
    ask("get: last by a wrong subject", "STREAM.MSG.GET.Q", {"last_by_subj": "Q..a"}),
    ask("get: next by subject", "STREAM.MSG.GET.Q", {"next_by_subj": "Q.b"}),
    ask("get: next by subject from", "STREAM.MSG.GET.Q", {"seq": 2, "next_by_subj": "Q.*"}),
    ask("get: next by subject beyond the end", "STREAM.MSG.GET.Q", {"seq": 99, "next_by_subj": "Q.*"}),
    ask("get: sequence and last", "STREAM.MSG.GET.Q", {"seq": 2, "last_by_subj": "Q.a"}),
    ask("get: next and last", "STREAM.MSG.GET.Q", {"next_by_subj": "Q.a", "last_by_subj": "Q.a"}),
    ask("get: nothing asked", "STREAM.MSG.GET.Q", {}),
    ask("get: sequence of none", "STREAM.MSG.GET.Q", {"seq": 77}),
    ask("get: without headers", "STREAM.MSG.GET.Q", {"seq": 6, "no_hdr": True}),
    ask("get: with a start time", "STREAM.MSG.GET.Q", {"start_time": "2020-01-01T00:00:00Z"}),
    ask("get: a batch", "STREAM.MSG.GET.Q", {"seq": 1, "batch": 2}),
    ask("get: from no stream", "STREAM.MSG.GET.none", {"seq": 1}),
    ask("direct: without headers", "DIRECT.GET.Q", {"seq": 6, "no_hdr": True}),
    ask("direct: a batch by subject", "DIRECT.GET.Q", {"next_by_subj": "Q.a", "batch": 2}, replies=3),
    ask("direct: a batch from a time", "DIRECT.GET.Q", {"start_time": "2020-01-01T00:00:00Z", "batch": 2}, replies=3),
    ask("direct: last of many", "DIRECT.GET.Q", {"multi_last": ["Q.a", "Q.b"]}, replies=3),
    ask("direct: last of many, up to", "DIRECT.GET.Q", {"multi_last": ["Q.*"], "up_to_seq": 4}, replies=3),
    ask("direct: last of many, in a batch", "DIRECT.GET.Q", {"multi_last": ["Q.>"], "batch": 1}, replies=2),
    ask("direct: last of many, of none", "DIRECT.GET.Q", {"multi_last": ["Q.zzz"]}),
    ask("direct: by subject", "DIRECT.GET.Q.Q.a"),
    ask("direct: by subject with a body", "DIRECT.GET.Q.Q.a", {"seq": 1}),
    ask("direct: unknown field", "DIRECT.GET.Q", {"sequence": 1}),
    ask("direct: min last sequence", "DIRECT.GET.Q", {"seq": 1, "min_last_seq": 1}),
)

CHANGES: tuple[Step, ...] = (
    stream("Q", ["Q.>"]),
    *messages("Q.a", "1", "2", "3"),
    *messages("Q.b", "4", "5", "6"),
    ask("purge: keep and seq", "STREAM.PURGE.Q", {"keep": 1, "seq": 2}),
    ask("purge: keep by subject", "STREAM.PURGE.Q", {"filter": "Q.a", "keep": 1}),
    ask("purge: seq by subject", "STREAM.PURGE.Q", {"filter": "Q.b", "seq": 6}),
    ask("purge: seq", "STREAM.PURGE.Q", {"seq": 4}),
    ask("purge: keep more than there is", "STREAM.PURGE.Q", {"keep": 100}),
    ask("purge: a filter that matches nothing", "STREAM.PURGE.Q", {"filter": "X"}),
    ask("after the purges", "STREAM.INFO.Q", {"deleted_details": True, "subjects_filter": ">"}),
    *(
        ask(f"update: {key}", "STREAM.UPDATE.Q", {"name": "Q", "subjects": ["Q.>"], "storage": "file", key: value})
        for key, value in (
            ("storage", "memory"),
            ("retention", "workqueue"),
            ("max_consumers", 3),
            ("first_seq", 9),
            ("allow_msg_ttl", True),
            ("deny_delete", True),
            ("max_age", 1),
            ("duplicate_window", -1),
            ("max_msgs", 1),
            ("description", "text"),
            ("compression", "s2"),
        )
    ),
    ask("update: undo deny_delete", "STREAM.UPDATE.Q", {"name": "Q", "subjects": ["Q.>"], "deny_delete": False}),
    ask("update: subjects", "STREAM.UPDATE.Q", {"name": "Q", "subjects": ["Q.>", "P.>"], "deny_delete": True}),
    ask("update: of no stream", "STREAM.UPDATE.none", {"name": "none", "subjects": ["x"]}),
    ask("update: of another name", "STREAM.UPDATE.Q", {"name": "P", "subjects": ["Q.>"]}),
    ask("pedantic: create", "STREAM.CREATE.P", {"name": "P", "subjects": ["pp"], "pedantic": True}),
    ask(
        "pedantic: window beyond the age",
        "STREAM.CREATE.P2",
        {"name": "P2", "subjects": ["p2"], "max_age": 10**9, "duplicate_window": 2 * 10**9, "pedantic": True},
    ),
    ask(
        "pedantic: age below the default window",
        "STREAM.CREATE.P3",
        {"name": "P3", "subjects": ["p3"], "max_age": 10**9, "pedantic": True},
    ),
    ask(
        "pedantic: direct that a key-value stream gets",
        "STREAM.CREATE.P4",
        {"name": "P4", "subjects": ["p4"], "max_msgs_per_subject": 1, "pedantic": True},
    ),
    ask(
        "required level that there is",
        "STREAM.CREATE.L",
        {"name": "L", "subjects": ["l"]},
        headers=(("Nats-Required-Api-Level", "1"),),
    ),
    ask(
        "required level that there is not",
        "STREAM.CREATE.L2",
        {"name": "L2", "subjects": ["l2"]},
        headers=(("Nats-Required-Api-Level", "99"),),
    ),
    ask(
        "required level that is no number",
        "STREAM.CREATE.L3",
        {"name": "L3", "subjects": ["l3"]},
        headers=(("Nats-Required-Api-Level", "x"),),
    ),
)


def change(name: str, action: str = "", **config: object) -> Call:
    """A create or update of consumer Q/c."""
    return ask(
        name,
        "CONSUMER.CREATE.Q.c",
        {
            "stream_name": "Q",
            "action": action,
            "config": {"name": "c", "durable_name": "c", "ack_policy": "explicit", **config},
        },
    )


CONSUMERS: tuple[Step, ...] = (
    stream("Q", ["Q.>"]),
    *messages("Q.a", "1", "2"),
    change("update what is not there", "update"),
    change("create", "create", ack_wait=10**10),
    change("create it again", "create", ack_wait=10**10),
    change("create another one of that name", "create", ack_wait=10**9),
    change("an action that there is not", "replace"),
    *(
        change(f"update: {key}", "update", **{key: value})
        for key, value in (
            ("deliver_policy", "new"),
            ("opt_start_seq", 2),
            ("ack_policy", "all"),
            ("replay_policy", "original"),
            ("max_waiting", 3),
            ("deliver_subject", "x.y"),
            ("ack_wait", 5 * 10**9),
            ("max_deliver", 7),
            ("filter_subject", "Q.b"),
            ("filter_subjects", ["Q.a", "Q.b"]),
            ("max_ack_pending", 5),
            ("max_batch", 5),
            ("max_expires", 10**9),
            ("max_bytes", 100),
            ("inactive_threshold", 10**11),
            ("headers_only", True),
            ("metadata", {"a": "b"}),
            ("mem_storage", True),
            ("num_replicas", 3),
            ("sample_freq", "50%"),
            ("backoff", [10**9, 2 * 10**9]),
            ("idle_heartbeat", 10**9),
            ("flow_control", True),
            ("rate_limit_bps", 1000),
            ("description", "text"),
        )
    ),
    ask("info after the updates", "CONSUMER.INFO.Q.c"),
    ask("pause into the future", "CONSUMER.PAUSE.Q.c", {"pause_until": "2099-01-01T00:00:00Z"}),
    ask("paused", "CONSUMER.INFO.Q.c"),
    ask("pause beyond 64 bits", "CONSUMER.PAUSE.Q.c", {"pause_until": "9999-12-31T23:59:59Z"}),
    ask("paused beyond 64 bits", "CONSUMER.INFO.Q.c"),
    ask("pause beyond the last year", "CONSUMER.PAUSE.Q.c", {"pause_until": "9999-12-31T23:59:59-23:00"}),
    ask("pause into the past", "CONSUMER.PAUSE.Q.c", {"pause_until": "2001-01-01T00:00:00Z"}),
    ask("resume", "CONSUMER.PAUSE.Q.c"),
    ask("pause of none", "CONSUMER.PAUSE.Q.none", {"pause_until": "2099-01-01T00:00:00Z"}),
    ask("unpin without groups", "CONSUMER.UNPIN.Q.c", {"group": "g"}),
    ask("unpin of none", "CONSUMER.UNPIN.Q.none", {"group": "g"}),
    ask("reset of none", "CONSUMER.RESET.Q.none", replies=0),
    ask("next with a group", "CONSUMER.MSG.NEXT.Q.c", {"batch": 1, "no_wait": True, "group": "g"}),
    ask("next with a threshold", "CONSUMER.MSG.NEXT.Q.c", {"batch": 1, "no_wait": True, "min_pending": 1}),
    ask("next with an id", "CONSUMER.MSG.NEXT.Q.c", {"batch": 1, "no_wait": True, "id": "x"}),
    ask("next with a priority", "CONSUMER.MSG.NEXT.Q.c", {"batch": 1, "no_wait": True, "priority": 1}),
    *(
        ask(f"next with a wrong {name}", "CONSUMER.MSG.NEXT.Q.c", {"batch": 1, "no_wait": True, name: value})
        for name, value in (
            ("group", 5),
            ("id", 5),
            ("min_pending", "x"),
            ("min_ack_pending", "x"),
            ("priority", "x"),
        )
    ),
    ask("next with a negative threshold", "CONSUMER.MSG.NEXT.Q.c", {"batch": 1, "no_wait": True, "min_pending": -1}),
    ask("next with a threshold of acks", "CONSUMER.MSG.NEXT.Q.c", {"batch": 1, "no_wait": True, "min_ack_pending": 1}),
    ask("next with a priority out of range", "CONSUMER.MSG.NEXT.Q.c", {"batch": 1, "no_wait": True, "priority": 99}),
    ask(
        "next with a threshold and too much", "CONSUMER.MSG.NEXT.Q.c", {"batch": 99, "no_wait": True, "min_pending": 1}
    ),
    ask("next with an id and a threshold", "CONSUMER.MSG.NEXT.Q.c", {"no_wait": True, "min_pending": 1, "id": "x"}),
)

HEADERS: tuple[Step, ...] = (
    stream("Q", ["Q.>"]),
    *(
        Call(name=f"publish: {name} {value}", subject="Q.a", payload=b"x", headers=((name, value),))
        for name, value in (
            ("Nats-Incr", "+1"),
            ("Nats-Batch-Id", "b1"),
            ("Nats-Batch-Sequence", "1"),
            ("Nats-Schedule", "@at 2099-01-01T00:00:00Z"),
            ("Nats-Schedule-Target", "Q.b"),
            ("Nats-TTL", "1h"),
            ("Nats-Rollup", "sub"),
            ("Nats-Rollup", "bogus"),
            ("Nats-Stream-Source", "x"),
            ("Nats-Expected-Stream", "Z"),
            ("Nats-Expected-Last-Sequence", "x"),
            ("Nats-Expected-Last-Subject-Sequence", "7"),
            ("Nats-Expected-Last-Subject-Sequence-Subject", "Q.b"),
            ("Nats-Required-Api-Level", "99"),
        )
    ),
    Call(
        name="publish: a batch of one",
        subject="Q.a",
        payload=b"x",
        headers=(("Nats-Batch-Id", "b2"), ("Nats-Batch-Sequence", "1"), ("Nats-Batch-Commit", "1")),
    ),
    Call(
        name="publish: expected subject sequence of another subject",
        subject="Q.a",
        payload=b"x",
        headers=(
            ("Nats-Expected-Last-Subject-Sequence", "0"),
            ("Nats-Expected-Last-Subject-Sequence-Subject", "Q.zzz"),
        ),
    ),
    ask("what is stored", "STREAM.INFO.Q", {"subjects_filter": ">"}),
)

NOT_SERVED: tuple[Step, ...] = (
    stream("O", ["O.>"]),
    *messages("O.a", "1"),
    consumer("O", "c"),
    *(
        ask(
            f"consumer: {policy}",
            f"CONSUMER.CREATE.O.{policy}",
            {
                "stream_name": "O",
                "config": {
                    "name": policy,
                    "ack_policy": "explicit",
                    "priority_policy": policy,
                    "priority_groups": ["g"],
                },
            },
        )
        for policy in ("overflow", "pinned_client", "prioritized")
    ),
    *(
        ask(f"{verb} on one node", f"{verb}.O.c" if verb.startswith("C") else f"{verb}.O", {"peer": "x"})
        for verb in (
            "CONSUMER.PEER.REMOVE",
            "CONSUMER.PEER.EVACUATE",
            "STREAM.PEER.EVACUATE",
            "STREAM.PEER.REMOVE",
            "STREAM.CANCEL_MOVE",
        )
    ),
    ask("reset", "CONSUMER.RESET.O.c"),
    ask("reset to a sequence", "CONSUMER.RESET.O.c", {"seq": 1}),
)

SCENES = (
    Scene(name="clients/pages", steps=PAGES),
    Scene(name="clients/gets", steps=GETS),
    Scene(name="clients/changes", steps=CHANGES),
    Scene(name="clients/consumers", steps=CONSUMERS),
    Scene(name="clients/headers", steps=HEADERS),
    Scene(name="clients/not served", steps=NOT_SERVED),
)
