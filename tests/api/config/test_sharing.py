"""What accounts export, import, map and allow: read into frozen values, or refused in nats-server's words."""

from pathlib import Path

import pytest

from jetraft.api.config.build import build_options
from jetraft.api.config.file import load_settings
from jetraft.api.config.settings import OptionsError
from jetraft.api.exchange.values import (
    ClientLimits,
    Destination,
    Export,
    Import,
    LatencySampling,
    Mapping,
    ServiceResponseType,
    Sharing,
    SharingKind,
)
from jetraft.api.options.options import Options
from jetraft.store.model.clock import NS_PER_S

STREAM, SERVICE = SharingKind.STREAM, SharingKind.SERVICE


def options(tmp_path: Path, text: str) -> Options:
    path = tmp_path / "server.conf"
    path.write_text(text)
    return build_options(load_settings(path, {}))


EVERYTHING = """
mappings { "g": "h" }
accounts {
  A { exports [
        {service: "q.>", accounts: [B], response_type: chunked, threshold: "3s", allow_trace: true}
        {stream: "s.*.t", account_token_position: 2}
      ]
      limits { max_conn: 1, max_subs: 2, max_payload: 3, max_leafnodes: 4 } }
  B { imports [
        {service: {account: A, subject: "q.1"}, to: "mine", share: true}
        {stream: {account: A, subject: "s.B.t"}, prefix: "of.a", allow_trace: true}
      ]
      mappings { "old": [{destination: new, weight: "30%"}, {dest: other, weight: 70, cluster: east}] } }
  C {}
}
"""


def test_everything_is_read(tmp_path: Path) -> None:
    found = options(tmp_path, EVERYTHING)
    assert found.sharing == {
        "$G": Sharing(mappings=(Mapping(source="g", destinations=(Destination(subject="h"),)),)),
        "A": Sharing(
            exports=(
                Export(
                    kind=SERVICE,
                    subject="q.>",
                    accounts=("B",),
                    response_type=ServiceResponseType.CHUNKED,
                    allow_trace=True,
                    threshold_ns=3 * NS_PER_S,
                ),
                Export(kind=STREAM, subject="s.*.t", token_position=2),
            ),
            limits=ClientLimits(max_connections=1, max_subscriptions=2, max_payload=3, max_leafnodes=4),
        ),
        "B": Sharing(
            imports=(
                Import(kind=SERVICE, account="A", subject="q.1", local="mine", share=True),
                Import(kind=STREAM, account="A", subject="s.B.t", prefix="of.a", allow_trace=True),
            ),
            mappings=(
                Mapping(
                    source="old",
                    destinations=(
                        Destination(subject="new", weight=30),
                        Destination(subject="other", weight=70, cluster="east"),
                    ),
                ),
            ),
        ),
    }


def test_accounts_that_share_nothing_cost_nothing(tmp_path: Path) -> None:
    assert options(tmp_path, "accounts [A, B]").sharing == {}


@pytest.mark.parametrize(
    ("given", "percent"),
    [
        ("x", 100),
        ("{subject: x}", 100),
        ("{sampling: 7, subject: x}", 7),
        ('{sampling: "8%", subject: x, more: 1}', 8),
        ('{sampling: " Headers ", subject: x}', 0),
    ],
)
def test_latencies_are_sampled(tmp_path: Path, given: str, percent: int) -> None:
    found = options(tmp_path, f"accounts {{ A {{ exports [{{service: s, latency: {given}}}] }} }}")
    assert found.sharing["A"].exports[0].latency == LatencySampling(subject="x", percent=percent)


def test_without_a_system_account_there_are_no_latencies(tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="system account not setup"):
        options(tmp_path, "no_system_account: true\naccounts { A { exports [{service: s, latency: x}] } }")


EXPORTS = [
    ("5", "Exports should be an array, got int64"),
    ("[5,]", "Export Items should be a map with type entry, got int64"),
    ("[{stream: x, service: y}]", 'Detected service "y" but already saw a stream'),
    ("[{service: x, stream: y}]", 'Detected stream "y" but already saw a service'),
    ("[{service: x, response_type: foo}]", 'Unknown response type: "foo"'),
    ("[{service: x, response: 5}]", "Expected response type to be string, got int64"),
    ("[{service: x, response: stream, response_type: single}]", "Duplicate response type definition"),
    ("[{service: x, threshold: foo}]", 'Expected response threshold to be a parseable time duration, got "foo"'),
    ("[{service: x, threshold: 5}]", "Expected response threshold to be a parseable time duration, got int64"),
    ('[{service: x, threshold: "1s", response_time: "1s"}]', "Duplicate response threshold detected"),
    ("[{service: 5}]", "Expected service name to be string, got int64"),
    ("[{stream: 5}]", "Expected stream name to be string, got int64"),
    ("[{response_type: stream, stream: x}]", "Detected response directive on non-service"),
    ('[{stream: x, threshold: "1s"}]', "Detected response directive on non-service"),
    ("[{stream: x, allow_trace: true}]", "Detected allow_trace directive on non-service"),
    ("[{latency: x, stream: s}]", "Detected latency directive on non-service"),
    ("[{service: s, latency: 1}]", "Expected latency entry to be a map/struct or string, got int64"),
    ("[{service: s, latency: {}}]", "Latency subject required, but missing"),
    ("[{service: s, latency: {sampling: 0, subject: x}}]", ": bad sampling percentage, should be 1-100"),
    ("[{service: s, latency: {sampling: 101, subject: x}}]", "bad sampling percentage, should be 1-100"),
    (
        "[{service: s, latency: {sampling: q, subject: x}}]",
        'Failed to parse latency sample: strconv.Atoi: parsing "q": invalid syntax',
    ),
    (
        "[{service: s, latency: {sampling: true, subject: x}}]",
        "Expected latency sample to be a string or map/struct, got bool",
    ),
    ("[{service: s, latency: {subject: 1}}]", "Expected latency subject to be a string, got string"),
    (
        '[{service: s, latency: {subject: "x.*"}}]',
        'Error adding service latency sampling for "s" on subject "x.*": invalid publish subject',
    ),
    (
        "[{service: s, latency: x, response: stream}]",
        'Error adding service latency sampling for "s" on subject "x": bad service response type',
    ),
    ("[{service: x, bogus: 1}]", 'unknown field "bogus"'),
    ("[{service: x, accounts: Z}]", "interface conversion: interface {} is string, not []interface {}"),
    ("[{service: x, accounts: [Z]}]", '1:1: "Z" account not defined for service export'),
    ("[{stream: x, accounts: [Z]}]", '1:1: "Z" account not defined for stream export'),
    ('[{stream: "a.*", account_token_position: 1}]', 'Error adding stream export "a.*": sublist: invalid subject'),
    ('[{service: "a.*", account_token_position: 3}]', 'Error adding service export "a.*": sublist: invalid subject'),
]


@pytest.mark.parametrize(("given", "error"), EXPORTS)
def test_wrong_exports_are_refused(tmp_path: Path, given: str, error: str) -> None:
    with pytest.raises(OptionsError) as caught:
        options(tmp_path, f"accounts {{ A {{ exports: {given} }} }}")
    assert error in str(caught.value)


IMPORTS = [
    ("5", "", "Imports should be an array, got int64"),
    ("[{stream: x}]", "", "Stream entry should be an account map, got string"),
    ("[{service: {account: B}}]", "", "Expect an account name and a subject"),
    ("[{service: {account: B, subject: x}, stream: {}}]", "", "Detected stream but already saw a service"),
    ("[{service: {account: B, subject: x}, share: 5}]", "", "interface conversion: interface {} is int64, not bool"),
    ("[{service: {account: B, subject: x}, bogus: 1}]", "", 'unknown field "bogus"'),
    ("[{service: {account: B, subject: x}, allow_trace: 1}]", "", "is int64, not bool"),
    ("[{service: {account: B, subject: x}, allow_trace: true}]", "", "Detected allow_trace directive on a non-stream"),
    ("[{service: {account: Z, subject: x}}]", "", '1:1: "Z" account not defined for service import'),
    ('[{service: {account: "$SYS", subject: x}}]', "", '1:1: "$SYS" account not defined for service import'),
    ("[{stream: {account: B, subject: x}}]", "", '1:1: Error adding stream import "x": stream import not authorized'),
    ("[{service: {account: B, subject: x}}]", "service: x, accounts: [B]", "service import not authorized"),
    ("[{service: {account: B, subject: x}}]", "stream: x", "service import not authorized"),
    ('[{service: {account: B, subject: "x.>"}}]', 'service: "x.*"', "service import not authorized"),
    (
        "[{service: {account: B, subject: x}}, {service: {account: B, subject: y}, to: x}]",
        "service: x",
        'Duplicate service import subject "x", previously used in import for account "B", subject "x"',
    ),
    (
        "[{stream: {account: B, subject: x}}, {stream: {account: B, subject: x}, to: y}]",
        "stream: x",
        'Error adding stream import "x": stream import already exists',
    ),
    (
        "[{stream: {account: B, subject: x}, prefix: a, to: b}]",
        "stream: x",
        "Stream import can not have a 'prefix' and a 'to' property",
    ),
    (
        '[{stream: {account: B, subject: x}, prefix: "a.*"}]',
        "stream: x",
        "stream import prefix can not contain wildcard tokens",
    ),
    (
        '[{stream: {account: B, subject: "x.*"}, to: a}]',
        'stream: "x.*"',
        "invalid mapping destination: not using all of the token wildcard(s) in a",
    ),
    (
        '[{service: {account: B, subject: "x.*.*"}, to: "a.$1.$3"}]',
        'service: "x.*.*"',
        'failed to create mapping transform for service import subject from "a.$1.$3" to "x.*.*": ',
    ),
    ('[{service: {account: B, subject: x}, to: "a..b"}]', "service: x", "sublist: invalid subject"),
    (
        '[{service: {account: B, subject: "x.B.y"}}]',
        'service: "x.*.y", account_token_position: 2',
        'Error adding service import "x.B.y": service import not authorized',
    ),
]


@pytest.mark.parametrize(("given", "exported", "error"), IMPORTS)
def test_wrong_imports_are_refused(tmp_path: Path, given: str, exported: str, error: str) -> None:
    with pytest.raises(OptionsError) as caught:
        options(tmp_path, f"accounts {{ A {{ imports: {given} }}\n B {{ exports [{{{exported}}}] }} }}")
    assert error in str(caught.value)


@pytest.mark.parametrize("kind", ["service", "stream"])
def test_a_cycle_of_imports_is_refused(tmp_path: Path, kind: str) -> None:
    accounts = [
        f"{name} {{ exports [{{{kind}: x}}]\n imports [{{{kind}: {{account: {other}, subject: x}}}}] }}"
        for name, other in (("A", "B"), ("B", "C"), ("C", "A"))
    ]
    with pytest.raises(OptionsError, match=f'Error adding {kind} import "x": import forms a cycle'):
        options(tmp_path, "accounts {\n" + "\n".join(accounts) + "\n}")
    chain = [*accounts[:2], f"C {{ exports [{{{kind}: x}}] }}"]
    assert len(options(tmp_path, "accounts {\n" + "\n".join(chain) + "\n}").sharing) == 3


MAPPINGS = [
    ("5", "interface conversion: interface {} is int64, not map[string]interface {}"),
    ('{ "a..b": c }', 'Subject "a..b" is not a valid subject'),
    ('{ "a.*": "c.*" }', 'Error adding mapping for "a.*" to "c.*" : invalid subject'),
    ('{ "a.*": "c.$2" }', "invalid mapping destination: wildcard index out of range in $2: [2]"),
    ('{ "a.*": "c.{{wildcard(1,2)}}" }', "too many arguments passed to the function in {{wildcard(1,2)}}"),
    ('{ "a.*": "c.{{wildcard()}}" }', "not enough arguments passed to the function in {{wildcard()}}"),
    ('{ "a.*": "c.{{wildcard(x)}}" }', "function argument is invalid or in the wrong format in {{wildcard(x)}}"),
    ('{ "a.*": "c.{{foo(1)}}" }', "invalid mapping destination: unknown function in {{foo(1)}}"),
    ('{ "a.>": c }', 'Error adding mapping for "a.>" to "c" : invalid subject'),
    ('{ "a": {dest: b} }', 'Missing weight for mapping destination "b"'),
    ('{ "a": {dest: b, weight: 101} }', "Invalid weight 101 for mapping destination"),
    ('{ "a": {dest: b, weight: "x%"} }', 'Invalid weight "x" for mapping destination'),
    ('{ "a": {dest: b, weight: 1.5} }', "Unknown entry type for weight of 1.5"),
    ('{ "a": {dest: b, weight: 50, foo: 1} }', 'Unknown field "foo" for mapping destination'),
    (
        '{ "a": [{dest: b, weight: 50}, {dest: b, weight: 20}] }',
        'Error adding mapping for "a" : duplicate entry for "b"',
    ),
    ('{ "a": [{dest: b, weight: 50}, {dest: c, weight: 60}] }', "total weight needs to be <= 100"),
    ('{ "a": 5 }', "Expected an entry for the mapping destination"),
    ('{ "a": "b c" }', 'Error adding mapping for "a" to "b c" : invalid mapping destination: invalid transform'),
    ('{ "a": "b..c" }', 'Error adding mapping for "a" to "b..c" : invalid mapping destination: invalid transform'),
]


@pytest.mark.parametrize(("given", "error"), MAPPINGS)
def test_wrong_mappings_are_refused(tmp_path: Path, given: str, error: str) -> None:
    for text in (f"accounts {{ A {{ mappings: {given} }} }}", f"mappings: {given}"):
        with pytest.raises(OptionsError) as caught:
            options(tmp_path, text)
        assert error in str(caught.value)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("5", "Expected account limits to be a map/struct, got 5"),
        ("{foo: 1}", 'Unknown field "foo" parsing account limits'),
        ("{max_conn: x}", "interface conversion: interface {} is string, not int64"),
    ],
)
def test_wrong_limits_are_refused(tmp_path: Path, given: str, error: str) -> None:
    with pytest.raises(OptionsError) as caught:
        options(tmp_path, f"accounts {{ A {{ limits: {given} }} }}")
    assert error in str(caught.value)
