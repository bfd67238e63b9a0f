"""Whatever a service answers, there is a verdict or a refusal."""

import time

from hypothesis import given
from hypothesis import strategies as st

from jetraft.api.credentials.callout import Asked, Question, judge_answer, without_asking
from jetraft.api.credentials.rules import CalloutRules
from jetraft.api.credentials.verdicts import ConnectionFacts, LoginRefusal, Verdict
from jetraft.store.model.clock import NS_PER_S
from tests.doubles.callout_service import answer, read, user_token
from tests.harness.tokens import Keys

ISSUER, SERVER, USER = Keys.new("account"), Keys.new("server"), Keys.new("user")
RULES = CalloutRules(issuer=ISSUER.public, account="AUTH", users=frozenset({"service"}))
ASKED = Asked(user_key=USER.public, server_id=SERVER.public, accounts={"A"})
FACTS = ConnectionFacts(unix_ns=int(time.time()) * NS_PER_S)
QUESTION = Question(
    rules=RULES,
    server={"id": SERVER.public, "name": "n"},
    user_key=USER.public,
    client={"id": 5},
    document={"user": "u", "pass": "secret", "echo": True},
    tls=None,
    now_s=5,
    expires_s=7,
)
REQUEST = read(QUESTION.token(lambda data: data[:64]))


def test_a_question_has_what_was_said_and_shows_no_secret() -> None:
    assert REQUEST["nats"]["connect_opts"] == {"user": "u", "pass": "secret", "protocol": 0}
    assert "secret" not in repr(QUESTION)


def test_an_answer_is_a_verdict() -> None:
    payload = answer(ISSUER, REQUEST, jwt=user_token(ISSUER, REQUEST, pub={"allow": ["a"]}))
    verdict = judge_answer(payload, RULES, ASKED, FACTS)
    assert isinstance(verdict, Verdict)
    assert (verdict.user, verdict.account, verdict.max_subs) == ("called", "A", -1)


def test_what_a_user_of_the_services_account_may_not_do() -> None:
    assert without_asking(Verdict(account="A"), RULES).permissions is None
    permissions = without_asking(Verdict(account="AUTH"), RULES).permissions
    assert permissions is not None
    assert permissions.publish.deny == ("$SYS.REQ.USER.AUTH",)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(payload: bytes) -> None:
    assert isinstance(judge_answer(payload, RULES, ASKED, FACTS), LoginRefusal)


@given(st.text(max_size=50) | st.integers() | st.none())
def test_any_token_inside_is_refused(inside: object) -> None:
    assert isinstance(judge_answer(answer(ISSUER, REQUEST, jwt=inside), RULES, ASKED, FACTS), LoginRefusal)
