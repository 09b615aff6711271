"""Log lines of the node's threads, passed on to Python's ``logging``."""

from __future__ import annotations

import logging
import threading

from . import _gradvine

_started = threading.Event()
_ending = threading.Event()
_thread: threading.Thread | None = None


def start() -> None:
    """Passes log lines on from now on; only the first call has an effect."""
    global _thread
    if _started.is_set():
        return
    _started.set()
    if _gradvine.start_logs():
        _thread = threading.Thread(target=_pass_on, name="gradvine-logs", daemon=True)
        _thread.start()


def _pass_on() -> None:
    while not _ending.is_set():
        _write(_gradvine.next_logs(0.2))
    _write(_gradvine.next_logs(0.0))


def _write(lines: list[tuple[int, str, str]]) -> None:
    for level, target, text in lines:
        logging.getLogger(target.replace("::", ".")).log(level, "%s", text)


def stop() -> None:
    """Writes the lines that are left."""
    _ending.set()
    if _thread is not None:
        _thread.join(timeout=1.0)
