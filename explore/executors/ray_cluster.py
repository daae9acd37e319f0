"""A Ray cluster to work on: one that is there, or one of this machine alone that ends with the search."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from sysconfig import get_path

from ...ir.errors import ClusterLostError, UsageError
from ...ir.units import is_digits
from .messages import ONE_THREAD

# Nothing is told to Ray's makers, and nothing is told here: a worker that dies is our affair, and what Ray says of it
# would go to stdout among the results. The pattern is read when ray is loaded.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}
_PORT = 6379
# What a client of HTTP/2 says first, with an empty frame of settings; a server answers with its own (RFC 9113, 3.4).
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
_SETTINGS = 4
_LONGEST_REASON = 400


def need_ray() -> None:
    """UsageError where Ray is not installed, and how to get it."""
    if find_spec("ray") is None:
        raise UsageError("executor ray needs slipstick[ray]: pip install 'slipstick[ray]'")


def is_connected() -> bool:
    """Whether this process is connected to a cluster."""
    if "ray" not in sys.modules:
        return False
    import ray

    return bool(ray.is_initialized())


def seclude() -> None:
    """Before ray is loaded: keep a cluster that it starts to this machine, and to those who have its secret."""
    os.environ.update(
        # What Ray does on systems whose firewall would ask: it listens on the loopback alone.
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
        # Whatever is set for other clusters.
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN=secrets.token_hex(32),
    )


@contextmanager
def cluster(address: str | None, num_cpus: int, timeout_s: float) -> Iterator[None]:
    """Be connected to a Ray cluster: a connection that is open already is used and left open.

    Args:
        address: `HOST:PORT` of the head node, or `auto` for the cluster of this machine or of `RAY_ADDRESS`; None
            starts a cluster on this machine and ends it.
        num_cpus: how many workers a cluster that is started has room for.
        timeout_s: how long the head node may take to answer.

    Raises:
        UsageError: Ray is not installed, the address is none, no cluster answers there or it cannot be used.
        ClusterLostError: a cluster of this machine does not start.
    """
    need_ray()
    with _environment(_quiet()):
        import ray

    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", connected):
            raise UsageError(
                f"already connected to the Ray cluster at {connected}, not {address}: call ray.shutdown() first"
            )
        yield
        return
    try:
        with _terminable(), _harmless_folder():
            _connect(address, num_cpus, timeout_s)
        yield
    finally:
        ray.shutdown()


def _connect(address: str | None, num_cpus: int, timeout_s: float) -> None:
    import ray

    if address is None:
        # Its workers inherit this; on other machines Ray itself sets one thread for an actor on one core.
        with _environment({**_quiet(), **dict.fromkeys(ONE_THREAD, "1")}):
            try:
                ray.init(
                    "local",
                    num_cpus=num_cpus,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
            except Exception as error:
                # Ray raises what it likes where one of its processes dies meanwhile.
                why = " ".join(str(error).split())[:_LONGEST_REASON]
                raise ClusterLostError(f"the Ray cluster of this machine did not start: {why}") from error
        return
    address = answering(address, timeout_s)
    try:
        # Somebody answers there: if it is no Ray, or wants to know who we are, asking twenty times is of no use.
        with _environment({**_quiet(), "RAY_gcs_server_port_wait_time_s": "1"}):
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(_not_connected(address, error)) from error


def answering(address: str, timeout_s: float) -> str:
    """Return the address that is meant, of a head node that answers or of whichever runs here; UsageError otherwise."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    if address != "auto":
        check_answers(address, timeout_s)
    return address


def check_answers(address: str, timeout_s: float) -> None:
    """UsageError when no head node of Ray answers in time at HOST:PORT; Ray itself would wait for minutes."""
    host, port = _host_and_port(address)
    try:
        with socket.create_connection((host, port), timeout_s) as line:
            # Ray speaks gRPC, which is HTTP/2; with TLS it would want to see our certificate first.
            if os.environ.get("RAY_USE_TLS", "0") not in ("", "0") or _answers(line, timeout_s):
                return
            why = "what answers there is no Ray"
    except TimeoutError:
        why = f"no answer in {timeout_s:g} s"
    except OSError as error:
        why = error.strerror or str(error)
    raise UsageError(f"no Ray cluster at {address}: {why}; {_how_to_start(port)}")


def _answers(line: socket.socket, timeout_s: float) -> bool:
    line.settimeout(timeout_s)
    line.sendall(_HTTP2_HELLO)
    head = b""
    while len(head) < 9:
        more = line.recv(9 - len(head))
        if not more:
            return False
        head += more
    return head[3] == _SETTINGS


def _host_and_port(address: str) -> tuple[str, int]:
    """Return both parts of an address.

    >>> _host_and_port("10.0.0.1:6379"), _host_and_port("[::1]:6379")
    (('10.0.0.1', 6379), ('::1', 6379))
    """
    host, _, port = address.rpartition(":")
    if "://" in address:
        raise UsageError(
            f"'{address}' is no address of a head node: give HOST:PORT or 'auto', on a machine of the cluster"
        )
    if not host or not is_digits(port) or not 0 < int(port) < 1 << 16:
        raise UsageError(f"'{address}' is no address of a Ray cluster: give HOST:PORT, such as {_example(address)}")
    return host.strip("[]"), int(port)


def _example(address: str) -> str:
    name = address.partition(":")[0] or "10.0.0.1"
    return f"{name}:{_PORT}, or 'auto'"


def _how_to_start(port: int = _PORT) -> str:
    head, others = f"ray start --head --port={port}", f"ray start --address=HOST:{port}"
    return f"start its head node with '{head}' and all others with '{others}'"


def _not_connected(address: str, error: Exception) -> str:
    if address == "auto":
        return f"no Ray cluster runs on this machine; give the address of one as HOST:PORT, or {_how_to_start()}"
    why = " ".join(str(error.__cause__ or error).rpartition("ray.exceptions.")[2].split())
    if "AuthenticationError" in why:
        why = (
            "it asks for a token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or a file ~/.ray/auth_token to the token"
        )
    return f"cannot use the Ray cluster at {address}: {why[:_LONGEST_REASON]}"


@contextmanager
def _terminable() -> Iterator[None]:
    """Keep the handler of SIGTERM, which Ray takes for itself: it would abort with a dump of its stack."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _harmless_folder() -> Iterator[None]:
    """Be where Python's modules lie: Ray has all workers look for modules first in what is the current folder now."""
    before = os.getcwd()
    os.chdir(get_path("stdlib"))
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment for what is loaded or started in the meantime."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _quiet() -> dict[str, str]:
    return {name: value for name, value in _QUIET.items() if name not in os.environ}
