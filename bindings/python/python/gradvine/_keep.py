"""State of a torch training loop beside the node's checkpoints."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ._errors import SetupError
from ._node import Node

_log = logging.getLogger("gradvine")

_FOLDER = "training"
#: The key that marks an array of numpy, with its type.
_ARRAY = "gradvine.array"
_NAME = re.compile(r"round-(\d+)\.(?:pt|safetensors)")


class Keeper:
    """Writes the state of objects when the node writes a checkpoint, and puts it back when the run
    goes back to that one.

    ``RUN/training/round-000000000120.pt`` is the state after the local steps of 120 rounds.
    """

    def __init__(self, node: Node, objects: Iterable[Any], asked: bool) -> None:
        self._objects = list(objects)
        for one in self._objects:
            if not isinstance(one, torch.Generator) and not (
                hasattr(one, "state_dict") and hasattr(one, "load_state_dict")
            ):
                problem = "expected objects with state_dict and load_state_dict, or generators"
                raise SetupError(
                    f"keep: {type(one).__name__}: {problem}",
                    None,
                    "keep",
                    type(one).__name__,
                    problem,
                )
        # What cannot be kept is refused now, not at the first checkpoint.
        for one in self._objects:
            _plain(_state(one), f"keep: {type(one).__name__}")
        folder, self._every = node._about["folder"], node._about["checkpoint_every_rounds"]
        if asked and (folder is None or self._every is None):
            problem = (
                "state is kept with checkpoints: set checkpoint.every_rounds, and a run directory "
                "(rules with a delay and asynchronous ones write none)"
            )
            raise SetupError(f"keep: {problem}", None, "keep", None, problem)
        self._folder = Path(folder or "") if folder and self._every else None
        self._failing = False

    def save(self, rounds: int, steps: int) -> None:
        """Writes the state after the local steps of so many rounds, if a checkpoint is due then."""
        if self._folder is None or rounds % self._every != 0:
            return
        states = [_plain(_state(one), f"keep: {type(one).__name__}") for one in self._objects]
        state = {"steps": steps, "objects": states}
        path = self._path(rounds)
        try:
            path.parent.mkdir(exist_ok=True)
            part = path.with_suffix(".part")
            with part.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            self._failing = False
        except OSError as error:
            if not self._failing:
                _log.warning("the state of the training is not written: %s", error)
            self._failing = True
        self._forget()

    def _forget(self) -> None:
        """Removes what belongs to checkpoints that the node has removed."""
        assert self._folder is not None
        kept = _rounds(self._folder.glob("checkpoints/*/round-*.safetensors"))
        if kept:
            for rounds in _rounds(self._folder.glob(f"{_FOLDER}/round-*.pt")):
                if rounds < min(kept):
                    with contextlib.suppress(OSError):
                        self._path(rounds).unlink()

    def restore(self, rounds: int) -> int | None:
        """Puts back the state after so many rounds. Returns the steps done until then; None if it
        is not there."""
        if self._folder is None:
            return None
        try:
            # Data only: a run directory may come from another machine, and a pickle is a program.
            # A restarted program may have its model on another device.
            state = torch.load(self._path(rounds), map_location="cpu", weights_only=True)
        except FileNotFoundError:
            return None
        except Exception as error:
            _log.warning("the state of the training in %s: %s", self._path(rounds), error)
            return None
        if not isinstance(state, dict) or len(state["objects"]) != len(self._objects):
            _log.warning("the state of the training is of other objects: it is not put back")
            return None
        for one, kept in zip(self._objects, state["objects"], strict=True):
            if isinstance(one, torch.Generator):
                one.set_state(kept)
            else:
                one.load_state_dict(_original(kept))
        return int(state["steps"])

    def clear(self) -> None:
        """Removes all of it."""
        if self._folder is not None:
            shutil.rmtree(self._folder / _FOLDER, ignore_errors=True)

    def _path(self, rounds: int) -> Path:
        assert self._folder is not None
        return self._folder / _FOLDER / f"round-{rounds:012}.pt"


def _state(one: Any) -> Any:
    return one.get_state() if isinstance(one, torch.Generator) else one.state_dict()


def _plain(value: Any, place: str) -> Any:
    """The same of types that are read without running code: tensors, numbers, texts and their
    collections. Arrays of numpy become tensors of their bytes."""
    if value is None or isinstance(value, torch.Tensor):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        raw = (
            torch.frombuffer(bytearray(value.tobytes()), dtype=torch.uint8) if value.size else None
        )
        return {_ARRAY: value.dtype.str, "shape": list(value.shape), "bytes": raw}
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, Mapping):
        return {_plain(key, place): _plain(one, place) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(one, place) for one in value)
    if isinstance(value, list):
        return [_plain(one, place) for one in value]
    problem = "expected tensors, arrays, numbers, texts, and lists, tuples and mappings of them"
    kind_of = f"{type(value).__module__}.{type(value).__qualname__}"
    text = f"{place}: its state_dict has a value of the type {kind_of}: {problem}"
    raise SetupError(text, None, "keep", kind_of, problem)


def _original(value: Any) -> Any:
    """The inverse of `_plain`, but for subclasses of mappings and numbers."""
    if isinstance(value, dict) and _ARRAY in value:
        raw = b"" if value["bytes"] is None else value["bytes"].numpy().tobytes()
        return np.frombuffer(raw, value[_ARRAY]).reshape(value["shape"]).copy()
    if isinstance(value, dict):
        return {key: _original(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(_original(one) for one in value)
    return [_original(one) for one in value] if isinstance(value, list) else value


def _rounds(paths: Iterable[Path]) -> list[int]:
    found = (_NAME.fullmatch(path.name) for path in paths)
    return [int(name[1]) for name in found if name]
