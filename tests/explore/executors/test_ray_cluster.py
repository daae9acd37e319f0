"""Addresses that are none, or where nobody answers, without any Ray."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from slipstick.explore.executors import ray_cluster
from slipstick.explore.executors.executors import executor_of
from slipstick.explore.executors.on_ray import OnRay
from slipstick.explore.executors.ray_cluster import check_answers
from slipstick.ir.errors import UsageError

from ..fake_job import FakeJob


@contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """A port of this machine that says one thing to whoever comes, or nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            line, _ = listening.accept()
            # Until the other hangs up, however he does.
            with line, suppress(OSError):
                line.recv(100)
                line.sendall(answer or b"")
                line.recv(100)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def test_a_server_of_http2_answers() -> None:
    with server(b"\0\0\6\4\0\0\0\0\0" + bytes(6)) as address:
        check_answers(address, 5.0)


@pytest.mark.parametrize(
    ("answer", "why"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "what answers there is no Ray"), (None, "no answer in 0.2 s")],
)
def test_others_do_not(answer: bytes | None, why: str) -> None:
    start = time.monotonic()
    with server(answer) as address, pytest.raises(UsageError, match=f"^no Ray cluster at {address}: {why}; start its"):
        check_answers(address, 0.2)
    assert time.monotonic() - start < 2.0


def test_where_nobody_listens_the_user_is_told_what_to_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    job = FakeJob()
    with pytest.raises(UsageError, match=f"127.0.0.1:{port}: Connection refused; .*'ray start --head --port={port}'"):
        list(OnRay(f"127.0.0.1:{port}").run(job, job.blocks()))


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("head", "give HOST:PORT, such as head:6379, or 'auto'"),
        ("head:", "give HOST:PORT, such as head:6379"),
        ("head:70000", "give HOST:PORT, such as head:6379"),
        (":6379", "give HOST:PORT, such as 10.0.0.1:6379"),
        ("ray://head:10001", "give HOST:PORT or 'auto', on a machine of the cluster"),
    ],
)
def test_what_is_no_address_is_refused(address: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_answers(address, 0.1)


def test_without_ray_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"executor ray needs slipstick\[ray\]: pip install 'slipstick\[ray\]'"):
        executor_of("ray")


def test_the_environment_is_afterwards_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLD", "1")
    monkeypatch.delenv("NEW", raising=False)
    with ray_cluster._environment({"OLD": "2", "NEW": "2"}):
        assert (os.environ["OLD"], os.environ["NEW"]) == ("2", "2")
    assert os.environ["OLD"] == "1"
    assert "NEW" not in os.environ
