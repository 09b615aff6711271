"""What happens to nodes when their process ends or is forked."""

from __future__ import annotations

import atexit
import multiprocessing
import multiprocessing.util
import os
import weakref

from . import _endings, _logs
from ._errors import StateError

_open: weakref.WeakSet[_endings.Loop] = weakref.WeakSet()
_process = os.getpid()


def opened(node: _endings.Loop) -> None:
    """Closes this node when the process ends, however it does."""
    if len(_open) == 0 and multiprocessing.parent_process() is not None:
        # Such a process ends without what is registered with atexit.
        multiprocessing.util.Finalize(None, _leave, exitpriority=1)
    _open.add(node)
    _endings.watch(lambda: list(_open))


def check() -> None:
    """Raises in a process that was forked from that of the nodes."""
    if os.getpid() != _process:
        raise StateError(
            "this process was forked from the one that joined the run: a node lives in the process "
            "that joined; call it there, or start workers with the method 'spawn'"
        )


def _leave() -> None:
    if os.getpid() != _process:
        return
    for node in list(_open):
        node.close()
    _logs.stop()


def _close_sockets() -> None:
    """Closes the sockets of the nodes in a forked child, which would keep connections open after
    the end of the parent. They are the sockets in edge-triggered epoll sets: Python's own event
    loops are level-triggered."""
    edge_triggered = 0x8000_0000
    try:
        handles = os.listdir("/proc/self/fd")
    except OSError:
        return
    for handle in handles:
        try:
            if os.readlink(f"/proc/self/fd/{handle}") != "anon_inode:[eventpoll]":
                continue
            with open(f"/proc/self/fdinfo/{handle}", encoding="ascii") as lines:
                watched = [line.split() for line in lines if line.startswith("tfd:")]
        except OSError:
            continue
        for words in watched:
            if int(words[3], 16) & edge_triggered:
                try:
                    if os.readlink(f"/proc/self/fd/{words[1]}").startswith("socket:"):
                        os.close(int(words[1]))
                except OSError:
                    continue


def _forked() -> None:
    if len(_open) > 0:
        _close_sockets()


atexit.register(_leave)
os.register_at_fork(after_in_child=_forked)
