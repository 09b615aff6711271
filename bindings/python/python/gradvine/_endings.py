"""Ends of a training loop that it does not announce: exceptions that nothing catches, failed cells
of a notebook, signals. Without these hooks a node would stay in the run, and the others wait."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any, Protocol

_log = logging.getLogger("gradvine")

#: Signals that end a program and that Python leaves to the system.
_SIGNALS = ("SIGTERM", "SIGHUP")


class Loop(Protocol):
    """A node, as far as the end of its training loop is concerned."""

    @property
    def name(self) -> str: ...
    @property
    def _is_running(self) -> bool: ...
    @property
    def _thread(self) -> int: ...
    @property
    def _calls(self) -> int: ...
    @property
    def _deadline_s(self) -> float: ...
    def _abandon(self, reason: str) -> None: ...
    def close(self) -> None: ...


_nodes: Callable[[], Iterable[Loop]] = tuple
_installed = False
_process = os.getpid()
#: The calls of each node when the last cell of the notebook began.
_before: dict[int, int] = {}


def watch(nodes: Callable[[], Iterable[Loop]]) -> None:
    """Installs the hooks. Only the first call has an effect, but for the signals, which only the
    main thread can watch."""
    global _nodes, _installed, _process
    _nodes = nodes
    if threading.current_thread() is threading.main_thread():
        for name in _SIGNALS:
            number = getattr(signal, name)
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end_by_signal)
    if _installed:
        return
    _installed, _process = True, os.getpid()
    before, of_threads = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if hasattr(sys, "ps1") or sys.flags.interactive:
            _leave_later(error, _running())
        else:
            _abandon(error)

    def hook_of_threads(arguments: Any) -> None:
        of_threads(arguments)
        if arguments.exc_value is not None:
            _abandon(arguments.exc_value)

    sys.excepthook, threading.excepthook = hook, hook_of_threads
    _watch_notebook()


def _running() -> list[Loop]:
    if os.getpid() != _process:
        return []
    return [node for node in _nodes() if node._is_running]


def _abandon(error: BaseException) -> None:
    """This thread ends by an exception: so do the runs of the nodes that it trained, as at the end
    of a `with` block."""
    if not isinstance(error, Exception):
        return
    for node in _running():
        if node._thread == threading.get_ident():
            node._abandon(f"{type(error).__name__}: {error}")


def _end_by_signal(number: int, frame: FrameType | None) -> None:
    nodes = _running()
    if not nodes:
        # As without this handler.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return
    # Nodes of this thread are closed on the way out, once no call of theirs is under way.
    for node in nodes:
        if node._thread != threading.get_ident():
            node.close()
    raise SystemExit(128 + number)


def _watch_notebook() -> None:
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is not None:
        shell.events.register("pre_run_cell", _begin_cell)
        shell.events.register("post_run_cell", _end_cell)


def _begin_cell(*_: Any) -> None:
    _before.clear()
    _before.update({id(node): node._calls for node in _running()})


def _end_cell(result: Any) -> None:
    error = result.error_in_exec
    if isinstance(error, Exception):
        used = [node for node in _running() if node._calls != _before.get(id(node))]
        _leave_later(error, used)


def _leave_later(error: BaseException, nodes: list[Loop]) -> None:
    """The loop may be mended and continue; the others wait as long as for a node that is away."""
    if not isinstance(error, Exception):
        return
    reason = f"{type(error).__name__}: {error}"
    for node in nodes:
        seconds, calls = node._deadline_s, node._calls
        _log.warning(
            "node %s is still in the run, and the others wait for its next round: resume the "
            "loop, or call node.fail(reason) or node.close()%s",
            node.name,
            f"; without a call within {seconds:g} s it ends the run" if seconds > 0.0 else "",
        )
        if seconds > 0.0:
            timer = threading.Timer(seconds, _leave_now, (node, calls, reason))
            timer.daemon = True
            timer.start()


def _leave_now(node: Loop, calls: int, reason: str) -> None:
    if node._is_running and node._calls == calls:
        node._abandon(f"{reason} (its program has not continued since)")
