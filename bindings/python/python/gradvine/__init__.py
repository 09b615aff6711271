"""Train one model on many machines with no server and no shared data.

A node joins a run with a model; every round is one call that takes the change of the model since
the last round and returns the mixed model::

    node = gradvine.join("node.toml", model, rows=len(data))
    sync = gradvine.attach(node, model, optimizer, every=50)
    for x, y in batches:
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()                    # every 50th step makes one round
        if sync.done:
            break
    result = gradvine.finish(sync, evaluate=test)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._catalogue import Compressor, Page, Rule, Topology, compressors, report, rules, topology
from ._errors import (
    Error,
    RunError,
    RunIncomplete,
    RunInterrupted,
    RunLeft,
    SetupError,
    StateError,
    UpdateError,
)
from ._gradvine import __version__
from ._local import local_nodes
from ._node import Node, join
from ._plan import Outlook, Plan, plan
from ._result import Report, Result
from ._simulate import Evaluation, Simulation, simulate

if TYPE_CHECKING:
    from ._torch import Sync, attach, finish

__all__ = [
    "Compressor",
    "Error",
    "Evaluation",
    "Node",
    "Outlook",
    "Page",
    "Plan",
    "Report",
    "Result",
    "Rule",
    "RunError",
    "RunIncomplete",
    "RunInterrupted",
    "RunLeft",
    "SetupError",
    "Simulation",
    "StateError",
    "Sync",
    "Topology",
    "UpdateError",
    "__version__",
    "attach",
    "compressors",
    "finish",
    "join",
    "local_nodes",
    "plan",
    "report",
    "rules",
    "simulate",
    "topology",
]


def __getattr__(name: str) -> Any:
    # What needs torch is imported at its first use.
    if name in ("Sync", "attach", "finish"):
        try:
            from . import _torch
        except ImportError as error:
            raise ImportError(f"gradvine.{name} needs torch: pip install torch") from error
        return getattr(_torch, name)
    raise AttributeError(f"module 'gradvine' has no attribute {name!r}")
