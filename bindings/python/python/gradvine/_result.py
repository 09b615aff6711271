"""What a run returns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


@dataclass
class Report:
    """The state of a node's run, as far as this node knows it."""

    #: Rounds done.
    round: int = 0
    #: The loss that training has reported last; NaN if it has reported none.
    loss: float = float("nan")
    #: Bytes of compressed updates that this node has sent.
    bytes_payload: int = 0
    #: The same with headers, before encryption.
    bytes_wire: int = 0
    #: Seconds since the first round, and those of them in local training.
    time_s: float = 0.0
    training_s: float = 0.0
    #: The neighbours that the node waits for, and why; empty if it does not wait.
    waiting_for: list[str] = field(default_factory=list)
    waiting: str = ""
    #: The neighbours whose links are down.
    lost: list[str] = field(default_factory=list)
    #: How often the run went back to a checkpoint, because a node was started again.
    resumed: int = 0

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind == "round":
            self.round, self.loss = event["rounds"], event["loss"]
            self.bytes_payload, self.bytes_wire = event["bytes_payload"], event["bytes_wire"]
            self.time_s, self.training_s = event["time_s"], event["computing_s"]
            self.waiting_for, self.waiting = [], ""
        elif kind == "resumed":
            self.round = event["rounds"]
            self.resumed += 1
        elif kind == "waiting":
            self.waiting_for, self.waiting = event["peers"], event["text"]
        elif kind == "link_lost" and event["peer"] not in self.lost:
            self.lost.append(event["peer"])
        elif kind == "linked" and event["peer"] in self.lost:
            self.lost.remove(event["peer"])


@dataclass(frozen=True)
class Result:
    """The end of a run."""

    #: The exact mean of all nodes' models, d numbers; the same bits at every node.
    mean: Array
    #: This node's own model after its last round.
    model: Array
    #: ``summary.json``: the same at every node.
    summary: dict[str, Any]
    #: The run directory, if one was written.
    folder: Path | None
    #: Names and shapes of the tensors, in the order of the vectors.
    tensors: list[tuple[str, tuple[int, ...]]] = field(default_factory=list, repr=False)
    _states: Callable[[Array], dict[str, Any]] | None = field(default=None, repr=False)

    @property
    def rounds(self) -> int:
        """Rounds done."""
        return int(self.summary["rounds"])

    @property
    def digest(self) -> str:
        """SHA-256 over the models of all nodes and their mean."""
        return str(self.summary["digest"])

    @property
    def metrics(self) -> dict[str, Any]:
        """The results at the end: measures of the mean and of the nodes' models, consensus."""
        return dict(self.summary["final"])

    @property
    def participation(self) -> dict[str, Any]:
        """The rounds in which each node took part, by name."""
        return dict(self.summary["participation"])

    @property
    def history(self) -> list[Any]:
        """The changes of the members."""
        return list(self.summary.get("history", []))

    @property
    def files(self) -> list[Path]:
        """The files of the run directory."""
        if self.folder is None:
            return []
        return sorted(path for path in self.folder.iterdir() if path.is_file())

    def state_dict(self, x: Array | None = None) -> dict[str, Any]:
        """The mean by the names of its tensors, as copies, or another vector such as
        :attr:`model`. With a torch module, torch tensors under the names of the module without
        wrappers, and also what the nodes have not trained together: for ``load_state_dict``.
        Otherwise arrays."""
        x = self.mean if x is None else x
        if self._states is not None:
            return self._states(x)
        ends = np.cumsum([math.prod(shape) for _, shape in self.tensors])
        parts = np.split(np.array(x), ends[:-1])
        tensors = zip(self.tensors, parts, strict=True)
        return {name: part.reshape(shape) for (name, shape), part in tensors}

    def __repr__(self) -> str:
        return (
            f"Result(rounds={self.rounds}, digest={self.digest!r}, "
            f"parameters={len(self.mean)}, folder={str(self.folder) if self.folder else None!r})"
        )
