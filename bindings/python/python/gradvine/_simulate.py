"""Runs of all nodes in this process, in virtual time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _gradvine, _processes
from ._errors import SetupError, UpdateError
from ._local import Value, read_experiment, refuse_unused
from ._node import Array, as_array, as_measures, note_warnings, of_arrays
from ._result import Result

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Evaluation:
    """All nodes after the same round."""

    #: Rounds done.
    rounds: int
    #: Seconds of virtual time until the last node had done them.
    time_s: float
    #: The mean of the losses that the nodes have reported.
    loss: float
    #: (1/n) sum |x_i - mean|^2.
    consensus: float
    #: Bytes that all nodes have sent: of updates, and with headers.
    bytes_payload: int
    bytes_wire: int
    #: Measures of the mean of all models.
    measures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Simulation(Result):
    """The end of a simulated run."""

    #: Each node's own model.
    models: list[Array] = field(default_factory=list)
    #: The evaluations, every ``run.evaluate_every`` rounds.
    curve: list[Evaluation] = field(default_factory=list)
    #: SHA-256 of all events with their times.
    trace: str = ""


def simulate(
    experiment: Mapping[str, Value] | str | os.PathLike[str],
    model: torch.nn.Module | Mapping[str, Any],
    train: Callable[..., Any],
    *,
    rows: Sequence[int],
    evaluate: Callable[..., float | Mapping[str, float]] | None = None,
    parameters: Iterable[str] | Iterable[torch.nn.Parameter] | None = None,
    buffers: str = "average",
) -> Simulation:
    """Simulates a run of all nodes, with the links and times of the experiment's ``[network]``.

    With the same training it ends with the same models, bit for bit, as nodes on machines of their
    own, so with the same digest. ``rows`` are the rows of each node.

    With arrays as the model, ``train(node, x)`` gets the node's number and its model (d numbers, to
    read) and returns its change, ``x before - x after``, or (change, loss), or (change, loss, step
    size). With a torch module, ``train(node, model)`` trains the module, which is loaded with the
    node's model, and returns the loss, or (loss, step size), or nothing; each node needs an
    optimizer of its own on the module's parameters, which keeps that node's state.

    ``evaluate`` gets x, or the module: the mean of all models at every evaluation, and at the end
    also each node's own one.
    """
    _processes.check()
    refuse_unused(experiment, {"run.out": "a simulation of a program writes no files"})
    text, beside = read_experiment(experiment)
    states: Callable[[Array], dict[str, Any]] | None = None
    if isinstance(model, Mapping):
        tensors, initial = of_arrays(model)

        def work(node: int, x: Array, update: Array) -> tuple[float, float]:
            change, loss, size = _three(train(node, x))
            if change is None or len(change) != len(update):
                given = "nothing" if change is None else f"{len(change)} numbers"
                raise UpdateError(f"train returned {given}: expected a change of {len(update)}")
            update[:] = change
            return loss, size

        def measured(x: Array) -> dict[str, float]:
            assert evaluate is not None
            return as_measures(evaluate(x))

    else:
        from ._layout import Layout, as_tensor

        layout = Layout(model, parameters=parameters, buffers=buffers)
        tensors, initial, states = layout.tensors(), layout.initial(), layout.state_dict

        def work(node: int, x: Array, update: Array) -> tuple[float, float]:
            start = as_tensor(x)
            layout.load(start)
            loss, size = _two(train(node, model))
            layout.write_update(start, as_tensor(update))
            return loss, size

        def measured(x: Array) -> dict[str, float]:
            assert evaluate is not None
            layout.load(as_tensor(x))
            return as_measures(evaluate(model))

    if not rows or min(rows) < 1:
        raise SetupError(f"rows = {list(rows)}: expected at least 1 for each node", None, "rows")
    curve: list[Evaluation] = []

    def see(figures: dict[str, Any], mean: _gradvine.Buffer) -> None:
        measures = {} if evaluate is None else measured(as_array(mean))
        curve.append(Evaluation(**figures, measures=measures))

    def call(node: int, x: _gradvine.Buffer, update: _gradvine.Buffer) -> tuple[float, float]:
        return work(node, as_array(x), as_array(update))

    at_end = None if evaluate is None else lambda x: measured(as_array(x))
    summary, trace, mean, models, warnings = _gradvine.simulate(
        (text, os.fspath(beside)), tensors, initial.data, list(rows), (call, see, at_end)
    )
    note_warnings(warnings)
    own = [as_array(one) for one in models]
    named = [(name, tuple(shape)) for name, shape, _ in tensors]
    results = (as_array(mean), own[0], json.loads(summary), None, named, states)
    return Simulation(*results, own, curve, trace)


def _three(value: Any) -> tuple[Any, float, float]:
    """A change, and loss and step size if they were returned."""
    if not isinstance(value, tuple):
        return value, float("nan"), 1.0
    change, *rest = value
    return change, *_two(tuple(rest))


def _two(value: Any) -> tuple[float, float]:
    """Loss and step size, as far as they were returned."""
    loss, size = float("nan"), 1.0
    if isinstance(value, tuple):
        loss = float(value[0]) if value else loss
        size = float(value[1]) if len(value) > 1 else size
    elif value is not None:
        loss = float(value)
    return loss, size
