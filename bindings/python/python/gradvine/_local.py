"""Nodes on one machine, to try a program before it runs at several sites."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import _gradvine
from ._errors import SetupError

#: The types of values in an experiment.
Value = bool | int | float | str | list[Any] | Mapping[str, Any]


def local_nodes(
    folder: str | os.PathLike[str], experiment: Mapping[str, Value] | str | os.PathLike[str]
) -> list[Path]:
    """Writes the files of the nodes of an experiment on this machine, and returns the path of each
    node's ``node.toml``, in node order. One process joins with one of them.

    ``experiment`` is the path of an experiment file, or its keys and values such as
    ``{"run.rounds": 100, "topology.file": "ring:4", "rule.kind": "choco"}``. Every node gets a key,
    a port that is free now, and a folder for its run. On several machines each site makes its own
    key, and keeps it to itself (``deploy/README.md``).
    """
    refuse_unused(experiment)
    text, beside = read_experiment(experiment)
    return _gradvine.write_node_files(os.fspath(folder), text, os.fspath(beside))


def as_settings(keys: Mapping[str, Value]) -> list[str]:
    """Keys and values as `key=value`, as files and the command line write them."""
    return [f"{key}={_as_toml(key, value)}" for key, value in keys.items()]


def read_experiment(
    experiment: Mapping[str, Value] | str | os.PathLike[str],
) -> tuple[str, Path]:
    """The text of an experiment, and the folder that its paths begin from."""
    if isinstance(experiment, Mapping):
        lines = [f"{key} = {_as_toml(key, value)}" for key, value in experiment.items()]
        return "\n".join(lines), Path.cwd()
    path = Path(experiment)
    try:
        return path.read_text(encoding="utf-8"), path.parent
    except OSError as error:
        raise SetupError(f"{path}: cannot be read: {error}", str(path), "experiment") from error


#: What a program with a model, data and an optimizer of its own does without, and what of it has an
#: effect all the same.
_USED = {"data.weighting"}
_UNUSED = {
    "data": "the program reads its own data",
    "optimizer": "the program has its own optimizer",
    "model.kind": "the program has its own model",
    "model.task": "the program has its own model",
    "model.hidden": "the program has its own model",
}


def refuse_unused(
    experiment: Mapping[str, Value] | str | os.PathLike[str], more: Mapping[str, str] | None = None
) -> None:
    """Refuses keys that would have no effect. A file may have them: others may use it, too."""
    if not isinstance(experiment, Mapping):
        return
    unused = _UNUSED | dict(more or {})
    for name, value in _flat(experiment):
        reason = unused.get(name) or unused.get(name.partition(".")[0])
        if reason is not None and name not in _USED:
            problem = f"has no effect here: {reason}; leave it out"
            raise SetupError(f"{name}: {problem}", None, name, repr(value), problem)


def _flat(experiment: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    """Keys with their sections, and values."""
    for key, value in experiment.items():
        if isinstance(value, Mapping) and "." not in key:
            yield from ((f"{key}.{name}", inner) for name, inner in value.items())
        else:
            yield key, value


def _as_toml(key: str, value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    if isinstance(value, list):
        return "[" + ", ".join(_as_toml(key, one) for one in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k} = {_as_toml(key, v)}" for k, v in value.items()) + "}"
    problem = "expected a number, a text, true or false, a list or a mapping of them"
    raise SetupError(f"{key} = {value!r}: {problem}", None, key, repr(value), problem)
