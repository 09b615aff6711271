"""Several nodes in one process: each on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import gradvine

T = TypeVar("T")

#: How long a test waits for its nodes.
PATIENCE = 60.0


def everywhere(files: list[Path], work: Callable[[int, Path], T]) -> list[T]:
    """Calls ``work(node, file)`` on a thread for each node; returns the values in node order, or
    raises the first exception."""
    ends: list[Any] = [None] * len(files)
    errors: list[BaseException] = []

    def run(node: int, file: Path) -> None:
        try:
            ends[node] = work(node, file)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(node, file), daemon=True)
        for node, file in enumerate(files)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive() or errors, "a node did not end"
    if errors:
        raise errors[0]
    return ends


def until(what: str, is_so: Callable[[], Any]) -> None:
    """Waits until a condition is true."""
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < PATIENCE, f"waited in vain: {what}"
        time.sleep(0.02)


@pytest.fixture
def nodes(tmp_path: Path) -> Callable[..., list[Path]]:
    """Makes the files of nodes on this machine: ``nodes("ring:3", {"rule.kind": "choco"})``."""
    count = 0

    def make(topology: str, keys: dict[str, Any] | None = None) -> list[Path]:
        nonlocal count
        count += 1
        experiment: dict[str, Any] = {
            "run.rounds": 20,
            "run.evaluate_every": 5,
            "run.connect_s": 20,
            "topology.file": topology,
            "rule.kind": "d-psgd",
            **(keys or {}),
        }
        return gradvine.local_nodes(tmp_path / f"nodes{count}", experiment)

    return make


class Bowl:
    """f(x) = |x - centre|^2 / 2, whose mean over the nodes has its minimum at the mean centre."""

    def __init__(self, node: int, size: int = 10) -> None:
        self.centre = np.arange(size, dtype=np.float32) * np.float32(0.1) + np.float32(node)

    def step(self, node: gradvine.Node, rate: float = 0.25) -> bool:
        """One step of gradient descent and one round."""
        np.multiply(node.x - self.centre, np.float32(rate), out=node.update)
        loss = float(((node.x - self.centre) ** 2).sum() / 2)
        return node.round(loss, rate)


def model(size: int = 10) -> dict[str, np.ndarray]:
    """Two tensors."""
    return {
        "weight": np.zeros((2, size // 2 - 1), np.float32),
        "bias": np.full(2, 0.5, np.float32),
    }
