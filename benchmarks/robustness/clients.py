"""The live slide rule under many clients at once: each is answered, and answered what it asked."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

from slipstick.cli.ui.rule import SlideRule
from slipstick.cli.ui.server import RuleServer

from .search import Row

_START: dict[str, object] = {
    "model": "gpt2", "system": "dgx-h100", "gpus": 8, "tp": 2, "pp": 1, "cp": 1, "ep": 1, "mbs": 1, "gbs": 64,
    "seq": 512, "zero": "1", "recompute": "none",
}  # fmt: skip


def of_clients(clients: int, seconds: float) -> Row:
    """Let so many ask for so long, each its own point; an answer of another point, or none, is wrong."""
    with RuleServer(SlideRule(), "", "") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        end = time.monotonic() + seconds

        def ask(number: int) -> tuple[int, int, float]:
            asked = wrong = 0
            longest = 0.0
            point = {**_START, "gbs": 64 * (1 + number % 8)}
            while time.monotonic() < end:
                start = time.monotonic()
                wrong += not _answered(server, point)
                asked, longest = asked + 1, max(longest, time.monotonic() - start)
            return asked, wrong, longest

        with ThreadPoolExecutor(clients) as pool:
            found = list(pool.map(ask, range(clients)))
        server.shutdown()
        thread.join()
    longest = max(one[2] for one in found)
    told = f"{clients} clients for {seconds:g} s on loopback; the longest waited {longest:.1f} s"
    return Row("request to the slide rule", sum(one[0] for one in found), sum(one[1] for one in found), told)


def _answered(server: RuleServer, point: dict[str, object]) -> bool:
    headers = {"X-Slipstick-Token": server.token, "Content-Type": "application/json"}
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=300)
    try:
        connection.request("POST", "/answer", json.dumps(point), headers)
        found = connection.getresponse()
        told = json.loads(found.read())
    except (OSError, ValueError):
        return False
    finally:
        connection.close()
    return found.status == 200 and f"--gbs {point['gbs']}" in json.dumps(told)
