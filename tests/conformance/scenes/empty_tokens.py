"""Subjects with empty tokens: nobody receives them, no stream stores them, and who publishes is told so or not."""

from tests.conformance.steps import Call, Raw, Scene, Step, stream

SUBJECTS = ("foo.", "foo..bar", ".foo", ".", "..", "foo...", "_INBOX.a..x", "_INBOX.a.")
WATCHED = ("SUB foo.> 1", "SUB foo.* 2", "SUB foo.*.bar 3", "SUB *.foo 4", "SUB * 5", "SUB *.* 6", "SUB _INBOX.a.> 7")
WATCH = "".join(f"{line}\r\n" for line in (*WATCHED, "SUB reply 8", "PUB _INBOX.a.x 1\r\nx")).encode()


def lines(subject: str) -> bytes:
    """Every way to name a subject."""
    named = (f"PUB {subject} 1\r\nx", f"PUB {subject} reply 1\r\ny", f"HPUB {subject} 12 13\r\nNATS/1.0\r\n\r\nz")
    return "".join(f"{line}\r\n" for line in (*named, f"PUB foo.a {subject} 1\r\nw", f"SUB {subject} 9")).encode()


def tried() -> list[Step]:
    """All subjects, of clients that want strict answers and of others."""
    return [
        Raw(name=f"{subject}, {'pedantic' if strict else 'lenient'}", data=WATCH + lines(subject),
            options={"pedantic": strict, "protocol": 1})
        for subject in SUBJECTS
        for strict in (True, False)
    ]  # fmt: skip


SCENES = (
    Scene(name="empty tokens/core", steps=tried()),
    Scene(
        name="empty tokens/stream",
        steps=[
            stream("S", ["foo", "foo.>", "*.foo", "bar.>"]),
            *(Call(name=f"store {subject}", subject=subject, payload=b"x") for subject in ("foo.", "foo..a", ".foo")),
            *(Call(name=f"store {subject}", subject=subject, payload=b"x") for subject in ("foo.a", "bar.b.", "bar.b")),
            Call(name="info", subject="$JS.API.STREAM.INFO.S", payload={"subjects_filter": ">"}),
            Call(name="an API subject", subject="$JS.API.STREAM.INFO."),
            Call(name="an API subject with a hole", subject="$JS.API.STREAM..INFO.S"),
        ],
    ),
    Scene(
        name="empty tokens/stream of everything",
        steps=[
            stream("S", [">"], no_ack=True),
            *tried(),
            *(
                Call(name=f"stored {subject}", subject="$JS.API.STREAM.MSG.GET.S", payload={"last_by_subj": subject})
                for subject in ("foo.", "foo..bar", ".foo", "foo...")
            ),
        ],
    ),
)
