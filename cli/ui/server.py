"""The server of the slide rule: this machine alone, one secret, four addresses, and nothing of the disk.

It answers on 127.0.0.1. Every request must bear the token that the start printed, name the host that it was started
on (a page of another name that resolves here is refused), and come from no other origin. What it serves is in memory.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import socket
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from ...ir.errors import SlipstickError, UsageError
from ...ir.text.json_text import json_text
from ...ir.units import is_digits
from .dragged_server import Point, read_point

HOST = "127.0.0.1"
# A point of the slide rule is a few hundred bytes.
MOST_BYTES = 8192
_IDLE_S = 30
# Requests that are worked on or waited for at a time; more are hung up on.
_MOST_AT_ONCE = 256
Request = socket.socket | tuple[bytes, socket.socket]
_TOKEN = "X-Slipstick-Token"
_LOCKED = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Answers(Protocol):
    """What answers points of the slide rule."""

    def answer(self, asked: Point) -> dict[str, object]:
        """Answer one."""
        ...

    def warm(self, asked: Point) -> int:
        """Make ready for more; return how much is left."""
        ...

    def plan_file(self, asked: Point) -> str:
        """Return one as the text of a plan file."""
        ...


class RuleServer(ThreadingHTTPServer):
    """Serves one page, and answers what it asks, one request at a time."""

    daemon_threads = True
    request_queue_size = _MOST_AT_ONCE

    def __init__(self, rule: Answers, page: str, policy: str, port: int = 0) -> None:
        """Take a port, any free one with 0; UsageError where it is taken."""
        self.rule, self.page, self.policy = rule, page.encode(), policy
        self.token, self.lock = secrets.token_urlsafe(24), threading.Lock()
        self._seats = threading.BoundedSemaphore(_MOST_AT_ONCE)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise UsageError(f"port {port} of {HOST}: {error.strerror or error}; --port 0 takes a free one") from error

    def process_request(self, request: Request, client_address: object) -> None:
        """Give a request a thread of its own while there are seats."""
        if self._seats.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Request, client_address: object) -> None:
        """Answer a request, and free its seat."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._seats.release()

    def handle_error(self, request: Request, client_address: object) -> None:
        """Say in one line what went wrong; nothing of clients that hung up or sent nothing."""
        error = sys.exception()
        if not isinstance(error, OSError):
            print(f"internal: {type(error).__name__}: {error} (please report it)", file=sys.stderr)

    @property
    def address(self) -> str:
        """The address of the page, with its token."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_S
    server: RuleServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def version_string(self) -> str:
        return "slipstick"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: addresses have the token in them."""

    def do_GET(self) -> None:
        """Serve the page."""
        try:
            parts = urlsplit(self.path)
        except ValueError:  # such as `http://[`
            self._refuse(HTTPStatus.BAD_REQUEST, "this is no address")
            return
        given = parse_qs(parts.query).get("token", [""])[0]
        if parts.path != "/":
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
        elif self._is_let_in(given):
            self._send(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8")

    def do_POST(self) -> None:
        """Answer a point of the slide rule."""
        handled = {"/answer": self._answer, "/warm": self._warm, "/plan": self._plan}.get(self.path)
        if handled is None:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here")
            return
        if not self._is_let_in(self.headers.get(_TOKEN, "")):
            return
        body = self._body()
        if body is None:
            return
        found: dict[str, object]
        try:
            asked = read_point(json.loads(body))
            with self.server.lock:
                found = handled(asked)
        except (SlipstickError, ValueError, RecursionError) as error:
            found = {"error": str(error)}
        self._send(HTTPStatus.OK, json_text(found).encode(), "application/json")

    def _answer(self, asked: Point) -> dict[str, object]:
        return self.server.rule.answer(asked)

    def _warm(self, asked: Point) -> dict[str, object]:
        return {"warming": self.server.rule.warm(asked)}

    def _plan(self, asked: Point) -> dict[str, object]:
        return {"plan": self.server.rule.plan_file(asked)}

    def _body(self) -> bytes | None:
        """Return what was sent; refuse what is no JSON, too long, or of no length."""
        if self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "application/json is needed")
            return None
        length = self.headers.get("Content-Length", "")
        if not is_digits(length) or "Transfer-Encoding" in self.headers:
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "a length is needed")
            return None
        # Of thousands of digits Python makes no number.
        if len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MOST_BYTES} bytes")
            return None
        return self.rfile.read(int(length))

    def _is_let_in(self, token: str) -> bool:
        """Whether a request has the token, names this host, and comes from this page; it is refused otherwise."""
        hosts = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        origin = self.headers.get("Origin")
        if self.headers.get_all("Host", []) not in [[host] for host in hosts]:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "another host was asked for")
        elif origin is not None and origin not in {f"http://{host}" for host in hosts}:
            self._refuse(HTTPStatus.FORBIDDEN, "another page asks")
        elif not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "the token is missing or wrong: open the address that the start printed")
        else:
            return True
        return False

    def _refuse(self, status: HTTPStatus, told: str) -> None:
        self.close_connection = True
        self._send(status, f"{told}\n".encode(), "text/plain; charset=utf-8")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {**_LOCKED, "Content-Security-Policy": self.server.policy, "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def page_of(start: object, choices: object) -> tuple[str, str]:
    """Return the page with the point that it begins at and the names that there are, and what it may do.

    It runs the one script that is in it, and asks this server alone.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    folder = Path(__file__).parent / "page"
    script, style = ((folder / name).read_text(encoding="utf-8") for name in ("ui.js", "ui.css"))
    env = Environment(loader=PackageLoader("slipstick.cli.ui", "page"), autoescape=True, undefined=StrictUndefined)
    data = json_text({"start": start, "choices": choices}).replace("<", "\\u003c")
    text = env.get_template("ui.html.j2").render(script=Markup(script), style=Markup(style), data=Markup(data))
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
