"""A web server with the tokens of accounts, as `resolver: URL(...)` asks for them, and what goes wrong with one."""

import base64
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from tests.harness.ports import HOST

PATH = "/jwt/v1/accounts/"
Answer = Callable[[BaseHTTPRequestHandler], None]


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext | None = None

    def finish_request(self, request: object, client_address: object) -> None:
        """Do the handshake in the thread of the connection."""
        try:
            if self.context is None:
                super().finish_request(request, client_address)  # type: ignore[arg-type]
                return
            with self.context.wrap_socket(request, server_side=True) as secured:  # type: ignore[arg-type]
                super().finish_request(secured, client_address)
        except OSError:
            return


class AccountServer:
    """`with AccountServer() as web:`; `tokens` are by key, `answers` stand in their place, `asked` are the paths."""

    def __init__(self, *, context: ssl.SSLContext | None = None, login: str = "") -> None:
        self.tokens: dict[str, str] = {}
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.released = threading.Event()  # what an answer may wait for
        self._login = login
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_words: object) -> None:
                pass

        self._server = _Listener((HOST, 0), Handler)
        self._server.context = context
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self.port = self._server.server_address[1]
        user = f"{login}@" if login else ""
        self.url = f"{'https' if context else 'http'}://{user}{HOST}:{self.port}{PATH}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        key = request.path.removeprefix(PATH)
        self.asked.append(key)
        expected = "Basic " + base64.b64encode(self._login.encode()).decode()
        if self._login and request.headers["Authorization"] != expected:
            request.send_error(401)
        elif key in self.answers:
            self.answers[key](request)
        elif key and key not in self.tokens:
            request.send_error(404)
        else:
            send(request, self.tokens.get(key, "ok").encode())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Nobody answers any more."""
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


def send(request: BaseHTTPRequestHandler, body: bytes, *, status: int = 200) -> None:
    """An answer with this body."""
    request.send_response(status)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
