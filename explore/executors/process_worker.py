"""What runs in a process of a pool: opens the search, answers piece by piece, ends with the process that started it.

Loads nothing heavy before it has set how many threads libraries may start.
"""

from __future__ import annotations

import os
import pickle
import signal
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from threading import Thread

from .messages import ONE_THREAD, Ready, RefusedPiece, answered, opened, packed


def serve(connection: Connection, job: bytes, folder: str) -> None:
    """Open the pickled job in a folder, say so, and answer each piece that comes; an end of the pipe is the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    os.chdir(folder)
    Thread(target=_end_with_parent, daemon=True).start()
    worker = opened(lambda: pickle.loads(job))
    try:
        connection.send_bytes(packed(worker if isinstance(worker, RefusedPiece) else Ready()))
        while not isinstance(worker, RefusedPiece):
            connection.send_bytes(answered(worker, connection.recv()))
    except (EOFError, OSError):
        return


def _end_with_parent() -> None:
    """Wait until the parent is no more, however it ended, and end without a word; a long piece would go on unheard."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
