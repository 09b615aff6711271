"""Train one model on many machines with no server and no shared data.

A node joins a run with a model; every round is one call that takes the change of the model since
the last round and returns the mixed model::

    node = gradvine.join("node.toml", model, rows=len(data), every=50)
    sync = gradvine.attach(node, model, optimizer)
    for x, y in batches:
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()                    # every 50th step makes one round
        if sync.done:
            break
    result = gradvine.finish(sync, evaluate=test)
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from ._catalogue import Compressor, Page, Rule, Topology, compressors, report, rules, topology
    from ._local import local_nodes
    from ._node import Node, join
    from ._plan import Outlook, Plan, plan
    from ._result import Report, Result
    from ._simulate import Evaluation, Simulation, simulate
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


#: What is imported at its first use, since it needs numpy or torch, by module.
_LATER = {
    "_catalogue": "Compressor Page Rule Topology compressors report rules topology",
    "_local": "local_nodes",
    "_node": "Node join",
    "_plan": "Outlook Plan plan",
    "_result": "Report Result",
    "_simulate": "Evaluation Simulation simulate",
    "_torch": "Sync attach finish",
}
_MODULES = {name: module for module, names in _LATER.items() for name in names.split()}


def _needs(module: str) -> str:
    return "torch" if module == "_torch" else "numpy"


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'gradvine' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f"gradvine.{module}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("gradvine"):
            raise
        # A missing torch, or what torch itself lacks.
        text = f"gradvine.{name} needs {error.name}: pip install {error.name}"
        raise ImportError(text) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # Without torch `help` and completion do without what needs it.
    there = {module: importlib.util.find_spec(module) is not None for module in ("numpy", "torch")}
    lacking = {name for name, module in _MODULES.items() if not there[_needs(module)]}
    return sorted((set(globals()) | set(__all__)) - lacking)
