"""Commands and scripts in forks of one process that has imported everything: each starts in milliseconds, on its own.

A command of a page costs 0.7 s of CPU before its first own line, a script that imports torch 4 s, and there are some
four hundred. A fork shares nothing that it changes, so each still runs as in a process of its own; that a process of
its own starts right is for `tests/house/test_lightness.py` and `tests/cli/test_ends.py` to say.

The process is this file as a script. A client sends its folder, environment, words and three streams over a socket
and reads the exit code. `shims` writes the programs `slipstick` and `python` that do so, for shells to find.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Enough of a client for a shell, without any import that takes longer than it must.
_SHIM = """#!{python} -ISE
import os, socket, sys
from json import dumps
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    told = dumps([{program!r}, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(line, [len(told).to_bytes(4, "big")], [0, 1, 2])
    line.sendall(told)
    code = line.recv(4)
os._exit(int.from_bytes(code, "big") if code else 70)
"""


@dataclass(frozen=True)
class Warm:
    """The process that forks, by the folder of its socket and its shims."""

    folder: Path

    @property
    def address(self) -> str:
        """Where it listens."""
        return str(self.folder / "socket")

    @property
    def programs(self) -> Path:
        """The folder of `slipstick` and `python`, for PATH."""
        return self.folder / "bin"

    def shims(self) -> None:
        """Write the programs."""
        self.programs.mkdir()
        for program in ("slipstick", "python"):
            shim = self.programs / program
            shim.write_text(
                _SHIM.format(python=sys.executable, address=self.address, program=program), encoding="utf-8"
            )
            shim.chmod(0o755)

    def start(self) -> subprocess.Popen[str]:
        """Start the process and wait until it has imported everything; it ends with whoever holds its stdin."""
        self.shims()
        process = subprocess.Popen(
            [sys.executable, __file__, self.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def run(
        self,
        program: str,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        apart: bool = False,
        given: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run `slipstick WORDS` or `python WORDS`, and return what it printed: both streams in one, or each apart."""
        command = [str(self.programs / program), *words]
        errors = subprocess.PIPE if apart else subprocess.STDOUT
        return subprocess.run(
            command, cwd=folder, env=environment, input=given, stdout=subprocess.PIPE, stderr=errors,
            encoding="utf-8", check=False,
        )  # fmt: skip


def _everything() -> None:
    """Import what commands and scripts import; nothing is computed, so that each starts from nothing."""
    import pkgutil
    from importlib import import_module
    from importlib.util import find_spec

    import slipstick

    for name in ("numpy", "rich.console", "torch", "torch.export", "transformers", "matplotlib.pyplot", "altair"):
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)
    floors = [f"slipstick.{floor}" for floor in ("ir", "backends", "passes", "cost", "driver", "frontend", "report")]
    for floor in (*floors, "slipstick.explore", "slipstick.cli", "slipstick.validation"):
        for found in pkgutil.walk_packages(import_module(floor).__path__, f"{floor}."):
            if not found.name.endswith("__main__"):
                import_module(found.name)
    assert slipstick.__version__


def _serve(address: str) -> None:
    """Fork for each client until stdin is closed: by the end of the tests, however they end."""
    import gc
    import select
    import signal

    _everything()
    gc.collect()
    gc.freeze()
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    waiting: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([listener, woken, sys.stdin], [], [])
        if sys.stdin in ready:
            os._exit(0)
        if woken in ready:
            woken.recv(4096)
            while waiting and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                line = waiting.pop(ended[0])
                with line, suppress(BrokenPipeError):
                    line.sendall((os.waitstatus_to_exitcode(ended[1]) & 255).to_bytes(4, "big"))
        if listener in ready:
            line, _ = listener.accept()
            size, streams, _, _ = socket.recv_fds(line, 4, 3)
            told = b""
            while len(told) < int.from_bytes(size, "big") and (more := line.recv(1 << 20)):
                told += more
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for end in (listener, woken, wake, line, *waiting.values()):
                    end.close()
                _run(told, streams)
            for stream in streams:
                os.close(stream)
            waiting[pid] = line


def _run(told: bytes, streams: Sequence[int]) -> None:
    """Be the program that a client asked for, and end with its exit code."""
    program, words, folder, environment = json.loads(told)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open to the end
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open to the end
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os._exit(_ended(program, words))


def _ended(program: str, words: Sequence[str]) -> int:
    import atexit
    import traceback

    code: object = 0
    try:
        if program == "slipstick":
            from slipstick.cli import main

            sys.argv = ["slipstick", *words]
            main()
        _python(list(words))
    except SystemExit as leave:
        code = leave.code
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    return code if isinstance(code, int) else int(code is not None)


def _python(words: list[str]) -> None:
    """`python [-W error] -c CODE` or `python [-W error] FILE WORDS`."""
    import runpy
    import types
    import warnings

    if words[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        words = words[2:]
    if words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), vars(module))
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _serve(sys.argv[1])
