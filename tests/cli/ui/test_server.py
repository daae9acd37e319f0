"""The server of the slide rule answers its own page alone."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse

import pytest

from slipstick.cli.ui import server as ui_server
from slipstick.cli.ui.dragged_server import Point
from slipstick.cli.ui.server import MOST_BYTES, RuleServer, page_of
from slipstick.ir.errors import UsageError
from tests.cli.ui.test_dragged import START


class Echo:
    """Answers with what was asked."""

    def answer(self, asked: Point) -> dict[str, object]:
        return {"gpus": asked.gpus}

    def warm(self, asked: Point) -> int:
        return 3

    def plan_file(self, asked: Point) -> str:
        return f"gpus: {asked.gpus}"


@pytest.fixture(scope="module")
def server() -> Iterator[RuleServer]:
    with RuleServer(Echo(), *page_of(START, {"<": "</script>"})) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def asked(
    server: RuleServer,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str | None] | None = None,
) -> tuple[HTTPResponse, bytes]:
    usual: dict[str, str | None] = {
        "Host": f"127.0.0.1:{server.server_port}",
        "X-Slipstick-Token": server.token,
        "Content-Type": "application/json",
    }
    usual |= {} if body is None else {"Content-Length": str(len(body))}
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {**usual, **(headers or {})}.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    found = connection.getresponse()
    data = found.read()
    connection.close()
    return found, data


def test_it_listens_on_this_machine_alone(server: RuleServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/?token={server.token}"
    # 192 bits.
    assert len(server.token) == 32


def test_the_page_may_run_its_own_script_and_ask_its_own_server(server: RuleServer) -> None:
    found, body = asked(server, "GET", f"/?token={server.token}")
    assert found.status == 200
    policy = str(found.getheader("Content-Security-Policy"))
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert (found.getheader("Cache-Control"), found.getheader("X-Frame-Options")) == ("no-store", "DENY")
    assert b'"\\u003c": "\\u003c/script>"' in body
    assert server.token.encode() not in body


def test_a_point_is_answered(server: RuleServer) -> None:
    found, body = asked(server, "POST", "/answer", json.dumps(START).encode())
    assert (found.status, json.loads(body)) == (200, {"gpus": 8})
    assert found.getheader("Access-Control-Allow-Origin") is None
    _, body = asked(server, "POST", "/warm", json.dumps(START).encode())
    assert json.loads(body) == {"warming": 3}
    _, body = asked(server, "POST", "/plan", json.dumps(START).encode())
    assert json.loads(body) == {"plan": "gpus: 8"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Slipstick-Token": "wrong"}, 403),
        ({"X-Slipstick-Token": None}, 403),
        ({"X-Slipstick-Token": "\xe9"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": None}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Length": None}, 411),
        ({"Content-Length": "-1"}, 411),
        ({"Transfer-Encoding": "chunked"}, 411),
        ({"Content-Length": str(MOST_BYTES + 1)}, 413),
        ({"Content-Length": "9" * 5000}, 413),
    ],
    ids=lambda value: str(value)[:40],
)
def test_whoever_else_asks_is_refused(server: RuleServer, headers: Mapping[str, str | None], status: int) -> None:
    found, body = asked(server, "POST", "/answer", json.dumps(START).encode(), headers)
    assert found.status == status
    assert b"gpus" not in body


def test_its_own_origin_is_let_in(server: RuleServer) -> None:
    origin = {"Origin": f"http://127.0.0.1:{server.server_port}"}
    assert asked(server, "POST", "/answer", json.dumps(START).encode(), origin)[0].status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/etc/passwd",
        "//etc/passwd",
        "/%2e%2e/x",
        "/page/ui.js",
        "/answer",
        "/favicon.ico",
        "/x?token=a",
    ],
)
def test_nothing_of_the_disk_is_served(server: RuleServer, path: str) -> None:
    assert asked(server, "GET", path)[0].status == 404


def test_what_is_no_address_is_refused(server: RuleServer) -> None:
    assert asked(server, "GET", "http://[")[0].status == 400


def test_a_client_that_hangs_up_is_no_failure(server: RuleServer, capfd: pytest.CaptureFixture[str]) -> None:
    for text in (b"", b"\xff" * 100, b"POST /answer HTTP/1.1\r\nContent-Length: 50\r\n\r\n{", b"GET /" + b"a" * 70000):
        with socket.create_connection(("127.0.0.1", server.server_port), 10) as line:
            line.sendall(text)
            # A reset, where it answers.
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert asked(server, "POST", "/answer", json.dumps(START).encode())[0].status == 200
    assert capfd.readouterr().err == ""


def test_many_clients_at_once_are_all_answered(server: RuleServer) -> None:
    def ask(number: int) -> int:
        return sum(asked(server, "POST", "/answer", json.dumps(START).encode())[0].status for _ in range(3))

    with ThreadPoolExecutor(40) as pool:
        assert list(pool.map(ask, range(40))) == [600] * 40


def test_more_than_there_are_seats_for_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ui_server, "_MOST_AT_ONCE", 3)
    with RuleServer(Echo(), *page_of(START, {})) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        silent = [socket.create_connection(("127.0.0.1", found.server_port), 10) for _ in range(4)]
        assert silent[3].recv(1) == b""
        for line in silent:
            line.close()
        found.shutdown()
        thread.join()


@pytest.mark.parametrize("token", ["", "?token=", "?token=x", "?Token=", "?token=%00"])
def test_the_page_itself_needs_the_token(server: RuleServer, token: str) -> None:
    found, body = asked(server, "GET", f"/{token}")
    assert found.status == 403
    assert b"<html" not in body


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b"[" * 8000, b'{"model": "/etc/passwd"}', b'{"gpus": 1e999}'], ids=repr
)
def test_what_is_no_point_is_said_to_be_none(server: RuleServer, body: bytes) -> None:
    found, told = asked(server, "POST", "/answer", body)
    assert found.status == 200
    assert set(json.loads(told)) == {"error"}


def test_other_methods_are_refused(server: RuleServer) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "HEAD"):
        assert asked(server, method, "/answer")[0].status == 501


def test_a_port_that_is_taken_is_said_to_be() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        with pytest.raises(UsageError, match="--port 0 takes a free one"):
            RuleServer(Echo(), "", "", one.getsockname()[1])
