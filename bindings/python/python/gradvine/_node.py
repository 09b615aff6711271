"""A node in a Python program."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from . import _gradvine, _logs, _processes
from ._errors import SetupError, StateError, UpdateError
from ._result import Report, Result

if TYPE_CHECKING:
    import torch

    from ._layout import Layout
    from ._torch import Sync

_log = logging.getLogger("gradvine")

Array = npt.NDArray[np.float32]

#: Name, shape, and whether the numbers are statistics, such as a running variance.
Tensor = tuple[str, Sequence[int], bool]


def join(
    file: str | os.PathLike[str],
    model: torch.nn.Module | Mapping[str, npt.ArrayLike],
    *,
    rows: int,
    every: int | None = None,
    parameters: Iterable[str] | Iterable[torch.nn.Parameter] | None = None,
    buffers: str = "average",
    agreed: Mapping[str, str] | None = None,
    out: str | os.PathLike[str] | None = None,
    fresh: bool = False,
) -> Node:
    """Starts a node and returns when all nodes of the run are linked.

    ``file`` is the node's file (``node.toml``), ``model`` a torch module or a mapping from names to
    arrays: its names, shapes and initial values must be the same at every node, or come from one
    node (``model.init = "from:NAME"`` in the experiment). ``rows`` is the number of rows that this
    node trains on, for ``data.weighting = "rows"`` and the summary. ``every`` is the number of
    local steps of a round, which :func:`attach` makes and which must be the same at every node.

    ``parameters`` (torch): the parameters to train together, as names or parameters; without it,
    all that require a gradient. The others must be equal everywhere: a hash is compared.
    ``buffers`` (torch): ``"average"`` also averages buffers of floats, such as BatchNorm's means,
    plainly, whatever the rule does with the parameters (under a rule without common rounds, or one
    that defends against faulty nodes, only at the end); ``"local"`` leaves them to each node.
    ``agreed``: further values that must be the same at all nodes, by key. ``out`` and ``fresh``:
    the run directory, and whether to start from the beginning in it.

    Raises :class:`SetupError` if a file or value is wrong or differs from that of another node,
    :class:`RunError` if nodes are missing after ``run.connect_s`` seconds.
    """
    _processes.check()
    if rows < 1:
        raise SetupError(f"rows = {rows}: expected at least 1", None, "rows", str(rows))
    if every is not None and every < 1:
        problem = "expected at least 1"
        raise SetupError(f"every = {every}: {problem}", None, "every", str(every), problem)
    further = {} if every is None else {"every": str(every)}
    layout: Layout | None = None
    if isinstance(model, Mapping):
        tensors, initial = of_arrays(model)
    else:
        from ._layout import Layout

        layout = Layout(model, parameters=parameters, buffers=buffers)
        tensors, initial = layout.tensors(), layout.initial()
        further |= layout.agreed()
    further |= agreed or {}
    _logs.start()
    exchange = _gradvine.Exchange.connect(
        os.fspath(file),
        tensors,
        initial.data,
        rows,
        agreed=sorted(further.items()),
        place=(None if out is None else os.fspath(out), fresh),
    )
    node = Node(exchange, tensors, layout, every)
    note_warnings(node._about["warnings"])
    return node


def note_warnings(warnings: Iterable[str]) -> None:
    """Logs what is allowed but doubtful in an experiment."""
    for warning in warnings:
        _log.warning("%s", warning)


def of_arrays(arrays: Mapping[str, npt.ArrayLike]) -> tuple[list[Tensor], Array]:
    tensors: list[Tensor] = []
    parts: list[Array] = []
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.kind != "f":
            problem = "expected an array of floating-point numbers"
            text = f"model.{name} = {array.dtype}: {problem}"
            raise SetupError(text, None, f"model.{name}", str(array.dtype), problem)
        tensors.append((name, list(array.shape), False))
        parts.append(array.astype(np.float32, copy=False).ravel())
    if not parts:
        raise SetupError("model: expected at least one array", None, "model")
    return tensors, np.concatenate(parts)


class Node:
    """A running node, linked with all others. Made by :func:`join`.

    One round: read :attr:`x`, train from it, write ``x before - x after`` into :attr:`update`, and
    call :meth:`round`. Use it as a context manager to leave the run when the block ends early.
    """

    def __init__(
        self,
        exchange: _gradvine.Exchange,
        tensors: Sequence[Tensor],
        layout: Layout | None,
        every: int | None,
    ) -> None:
        self._exchange = exchange
        self._layout = layout
        self._every = every
        #: The hook of :func:`attach`, if there is one.
        self._sync: weakref.ref[Sync] | None = None
        #: The thread of the last call, whose end by an exception is that of the training.
        self._thread = threading.get_ident()
        #: The calls of the training loop so far.
        self._calls = 0
        self._result: Result | None = None
        self._closed = False
        self._warned = False
        self._report = Report()
        #: The last mean of all models, and the rounds that it is after.
        self._mean: tuple[int, Array] | None = None
        self._about = exchange.about()
        #: Names and shapes of the tensors, in the order of the flat vectors.
        self.tensors = [(name, tuple(shape)) for name, shape, _ in tensors]
        _processes.opened(self)

    @property
    def name(self) -> str:
        """This node's name in the topology."""
        return str(self._about["name"])

    @property
    def neighbours(self) -> list[str]:
        """The names of its neighbours."""
        return list(self._about["neighbours"])

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes."""
        return list(self._about["nodes"])

    @property
    def rule(self) -> str:
        """The name of the update rule."""
        return str(self._about["rule"])

    @property
    def x(self) -> Array:
        """The model, d numbers, to read: what local training starts from. An array that is kept
        over a round keeps its numbers, at the price of a copy. Empty once the rounds are over."""
        return self._parts()[0]

    @property
    def update(self) -> Array:
        """The vector for the change of the model, d numbers, to write. Get it again for each round.
        Its initial numbers are arbitrary. Empty once the rounds are over."""
        return self._parts()[1]

    def _buffers(self) -> tuple[_gradvine.Buffer, _gradvine.Buffer] | None:
        _processes.check()
        return self._exchange.parts()

    def _parts(self) -> tuple[Array, Array]:
        buffers = self._buffers()
        if buffers is None:
            empty = np.empty(0, np.float32)
            return empty, empty
        x, update = buffers
        return as_array(x), as_array(update)

    @property
    def done(self) -> bool:
        """Whether the rounds are over: call :meth:`finish`."""
        _processes.check()
        return self._closed or not self._exchange.is_open()

    @property
    def rounds(self) -> int:
        """Rounds done."""
        _processes.check()
        return self._exchange.rounds()

    @property
    def report(self) -> Report:
        """The state of the run."""
        _processes.check()
        self._read_events()
        return self._report

    def _read_events(self) -> None:
        for event in self._exchange.events():
            if event["kind"] == "averaged":
                self._mean = event["rounds"], as_array(event["mean"])
            elif event["kind"] == "resumed":
                self._mean = None
            self._report._take(event)

    @property
    def mean(self) -> Array | None:
        """The exact mean of all nodes' models after the last round, d numbers to read; None if that
        round has formed none. With ``run.mean_every = k`` in the experiment every k-th round does:
        all nodes then have the same numbers, and can decide the same, such as to :meth:`finish`.
        """
        _processes.check()
        self._read_events()
        if self._mean is None or self._mean[0] != self.rounds:
            return None
        return self._mean[1]

    def round(self, loss: float = math.nan, size: float = 1.0) -> bool:
        """One round: passes :attr:`update` on, and returns when :attr:`x` is the mixed model.

        ``loss`` is the mean loss of the local training, for progress and metrics; ``size`` the sum
        of the step sizes in the update, for rules that keep gradients. Returns whether there is a
        next round. After Ctrl-C (KeyboardInterrupt) the round continues: the next call waits for
        the same mixed model.

        Raises :class:`UpdateError` for numbers that are not finite, before anything is sent, and
        :class:`RunError` if the run ended.
        """
        self._called()
        return self._round(loss, size)

    def _round(self, loss: float, size: float) -> bool:
        try:
            more, copied = self._exchange.round(loss, size)
        except UpdateError as error:
            raise self._name_tensor(error) from None
        self._read_events()
        if copied and not self._warned:
            self._warned = True
            _log.info(
                "arrays of x or update were kept over a round: each such round makes a copy of "
                "the vector"
            )
        return more

    def _called(self) -> None:
        """A call of the training loop: the node is in use, by this thread."""
        _processes.check()
        self._thread = threading.get_ident()
        self._calls += 1

    def _name_tensor(self, error: UpdateError) -> UpdateError:
        index = error.index or 0
        for name, shape in self.tensors:
            length = math.prod(shape)
            if index < length:
                return UpdateError(
                    f"{name}[{index}] of the update is {error.value}: expected finite numbers. "
                    "Training has diverged or met bad data; nothing was sent. Reset the model to "
                    "x and continue, or end the run for all nodes with fail(reason)",
                    name,
                    index,
                    error.value,
                )
            index -= length
        return error

    def round_copy(
        self, update: npt.ArrayLike, loss: float = math.nan, size: float = 1.0
    ) -> Array | None:
        """The same with copies: takes an update, returns the mixed model, or None if that was the
        last round."""
        array = np.asarray(update, np.float32).ravel()
        target = self.update
        if len(array) != len(target) and len(target) > 0:
            text = f"the update has {len(array)} numbers: expected {len(target)}"
            raise UpdateError(text)
        target[:] = array[: len(target)]
        del target
        return self.x.copy() if self.round(loss, size) else None

    async def round_async(self, loss: float = math.nan, size: float = 1.0) -> bool:
        """The same as :meth:`round` for asyncio. If the task is cancelled, the round continues."""
        self._called()
        return await asyncio.to_thread(self._round, loss, size)

    def measure(self, **measures: float) -> None:
        """Measures of the program for the next lines of ``metrics.jsonl``."""
        self._exchange.set_measures(measures)

    def finish(
        self, evaluate: Callable[[Array], float | Mapping[str, float]] | None = None
    ) -> Result:
        """Ends the rounds of all nodes, if they are not over, and returns the results.

        ``evaluate`` is called with this node's own model and with the mean (d numbers each), and
        returns a number or measures by name; they are in the summary of all nodes, which
        wait for it.

        Raises :class:`RunError` if the run did not end as it should. If ``evaluate`` raises, the
        run ends for all nodes as it should, and its exception is raised here; a second call of
        ``finish`` returns the results.
        """
        self._called()
        if self._result is None:
            function = None if evaluate is None else _measured(evaluate)
            summary, folder, mean, model = self._exchange.finish(function)
            self._result = Result(
                as_array(mean),
                as_array(model),
                json.loads(summary),
                None if folder is None else Path(folder),
                self.tensors,
            )
        return self._result

    def fail(self, reason: str) -> None:
        """Ends the run because training cannot continue here: all nodes get the reason."""
        _processes.check()
        if not self._closed:
            self._exchange.fail(reason)
            self.close()

    @property
    def _is_running(self) -> bool:
        """Whether the others still need this node."""
        if self._closed or self._result is not None:
            return False
        try:
            return self._exchange.is_open()
        except StateError:
            # A call is under way.
            return True

    @property
    def _deadline_s(self) -> float:
        """How long the others wait for a node that is away; 0: for ever."""
        return float(self._about["deadline_s"])

    def _abandon(self, reason: str) -> None:
        """As :meth:`fail`, where nothing can be done about an error."""
        with contextlib.suppress(Exception):
            self.fail(reason)

    def close(self) -> None:
        """Leaves the run, if it is not over. The neighbours learn it at once."""
        _processes.check()
        if not self._closed:
            self._closed = True
            self._exchange.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception) and not self._closed and not self.done:
            self.fail(f"{type(error).__name__}: {error}")
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"round {self._exchange.rounds()}"
        return f"<gradvine.Node {self.name}, {state}>"


def _measured(
    evaluate: Callable[[Array], float | Mapping[str, float]],
) -> Callable[[_gradvine.Buffer], dict[str, float]]:
    def measure(x: _gradvine.Buffer) -> dict[str, float]:
        return as_measures(evaluate(as_array(x)))

    return measure


def as_array(buffer: _gradvine.Buffer) -> Array:
    return np.frombuffer(memoryview(buffer), np.float32)


def as_measures(value: Any) -> dict[str, float]:
    if isinstance(value, Mapping):
        return {str(name): float(number) for name, number in value.items()}
    return {"score": float(value)}
