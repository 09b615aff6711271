"""What a run will take, before it is started."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from . import _gradvine
from ._errors import SetupError
from ._local import Value, as_settings, read_experiment
from ._node import Tensor, of_arrays

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Outlook:
    """The predicted cost of one setting."""

    #: What it changes in the experiment.
    settings: Mapping[str, Value]
    #: The rule, the compressor with its constants, and the topology.
    rule: str
    compressor: str
    topology: str
    #: Rounds of the run, seconds of a round and of the run.
    rounds: int
    round_s: float
    run_s: float
    #: The share of time in which a node computes, from 0 to 1.
    computing: float
    #: Bytes that a node sends in a round: of updates and with headers, mean over nodes; and with
    #: headers at the busiest node.
    bytes_payload: float
    bytes_wire: float
    bytes_wire_most: float
    #: Rounds in which W shrinks disagreement to a hundredth; None if it never does. rho of W.
    agreement_rounds: int | None
    rho: float
    #: Seconds of the run, divided by the share of squared disagreement that a round removes: the
    #: order in which settings are ranked.
    cost_s: float


@dataclass(frozen=True)
class Plan:
    """Predictions, in the order of the settings. A notebook shows them as a table."""

    outlooks: list[Outlook]
    #: Settings that cannot work, and why.
    refused: list[tuple[Mapping[str, Value], str]] = field(default_factory=list)

    def __iter__(self) -> Iterator[Outlook]:
        return iter(self.outlooks)

    def __len__(self) -> int:
        return len(self.outlooks)

    @property
    def best(self) -> Outlook:
        """The setting with the least ``cost_s``."""
        return min(self.outlooks, key=lambda one: one.cost_s)

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines += [f"refused: {_name(settings)}: {why}" for settings, why in self.refused]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *rows = [[html.escape(cell) for cell in row] for row in self._rows()]
        table = "".join(f"<th>{cell}</th>" for cell in head)
        for row in rows:
            table += "</tr><tr>" + "".join(f"<td>{cell}</td>" for cell in row)
        below = "".join(
            f"<p>refused: {html.escape(f'{_name(settings)}: {why}')}</p>"
            for settings, why in self.refused
        )
        return f"<table><tr>{table}</tr></table>{below}"

    def _rows(self) -> list[list[str]]:
        rows = [["setting", "rule", "compressor", "topology", "bytes/round", "round", "run", "rho"]]
        for one in self.outlooks:
            rows.append(
                [
                    _name(one.settings),
                    one.rule,
                    one.compressor,
                    one.topology,
                    f"{one.bytes_wire:,.0f}",
                    _seconds(one.round_s),
                    _seconds(one.run_s),
                    f"{one.rho:.4f}",
                ]
            )
        return rows


def _name(settings: Mapping[str, Value]) -> str:
    return ", ".join(as_settings(settings)) or "as given"


def _seconds(seconds: float) -> str:
    if seconds < 1.0:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 120.0 else f"{seconds / 60.0:.3g} min"


def plan(
    experiment: Mapping[str, Value] | str | os.PathLike[str],
    model: torch.nn.Module | Mapping[str, npt.ArrayLike],
    *,
    settings: Iterable[Mapping[str, Value]] = ({},),
    parameters: Iterable[str] | Iterable[torch.nn.Parameter] | None = None,
    buffers: str = "average",
) -> Plan:
    """Predicts bytes and time of a run with this model, without computing anything.

    Links come from the experiment's topology file or ``network.preset``. A local step takes
    ``network.compute_ms`` (with ``network.compute = "fixed"``), and a round has
    ``optimizer.local_steps`` of them. Each of ``settings`` is tried in turn: keys and values that
    replace those of the experiment, such as
    ``{"rule.kind": "choco", "compressor.kind": "min-max"}``. Those that cannot work are in
    ``refused``; if there is only one, its :class:`SetupError` is raised.
    """
    text, beside = read_experiment(experiment)
    tensors: list[Tensor]
    if isinstance(model, Mapping):
        tensors, _ = of_arrays(model)
    else:
        from ._layout import Layout

        tensors = Layout(model, parameters=parameters, buffers=buffers).tensors()
    outlooks: list[Outlook] = []
    refused: list[tuple[Mapping[str, Value], str]] = []
    errors: list[SetupError] = []
    for keys in settings:
        try:
            found: dict[str, Any] = _gradvine.plan(
                (text, os.fspath(beside)), as_settings(keys), tensors
            )
            outlooks.append(Outlook(settings=keys, **found))
        except SetupError as error:
            # The settings are no arguments of the command line here.
            text = str(error).removeprefix("--set: ")
            refused.append((keys, text))
            errors.append(SetupError(text, None, error.place, error.value, error.problem))
    if not outlooks and len(errors) == 1:
        raise errors[0]
    return Plan(outlooks, refused)
