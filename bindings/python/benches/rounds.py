"""The time of a round from Python: two nodes on this machine, D-PSGD with dense vectors over TCP.

    python benches/rounds.py 25000000

Beside it: one copy of the vector, and rules whose rounds overlap with training. Medians of ten
rounds. `cargo bench -p gradvine --bench loopback`
measures rounds of nodes in Rust.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import gradvine

ROUNDS = 12


#: Seconds of training in a round, where overlap is measured.
TRAINING = 0.3


def measure(
    size: int,
    loop: Callable[..., None],
    make: Callable[[int], Any],
    rule: Mapping[str, Any] | None = None,
) -> float:
    """Seconds of a round at the slower node."""
    experiment = {
        "run.rounds": ROUNDS,
        "run.evaluate_every": ROUNDS,
        "topology.file": "path:2",
        **(rule or {"rule.kind": "d-psgd"}),
    }
    times: list[list[float]] = [[], []]
    with tempfile.TemporaryDirectory() as folder:
        files = gradvine.local_nodes(Path(folder) / "nodes", experiment)

        def run(index: int) -> None:
            model = make(size)
            node = gradvine.join(files[index], model, rows=1, every=1)
            loop(node, model, times[index])
            node.finish()

        threads = [threading.Thread(target=run, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return max(statistics.median(one[2:]) for one in times)


def arrays(size: int) -> dict[str, np.ndarray]:
    return {"x": np.zeros(size, np.float32)}


def lent(node: gradvine.Node, _: object, times: list[float]) -> None:
    """Vectors in place; local training that writes a constant."""
    while not node.done:
        node.update[:] = 1e-6
        begun = time.perf_counter()
        node.round(0.0)
        times.append(time.perf_counter() - begun)


def trained(node: gradvine.Node, _: object, times: list[float]) -> None:
    """The same with training that takes time, as on an accelerator; the whole turn is measured."""
    while not node.done:
        begun = time.perf_counter()
        time.sleep(TRAINING)
        node.update[:] = 1e-6
        node.round(0.0)
        times.append(time.perf_counter() - begun)


def copied(node: gradvine.Node, _: object, times: list[float]) -> None:
    """Vectors of one's own."""
    update = np.full(node.x.size, 1e-6, np.float32)
    while not node.done:
        begun = time.perf_counter()
        node.round_copy(update, 0.0)
        times.append(time.perf_counter() - begun)


def module(size: int) -> Any:
    import torch

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.x = torch.nn.Parameter(torch.zeros(size))

    return Module()


def hooked(node: gradvine.Node, model: Any, times: list[float]) -> None:
    """A torch module: the hook computes the change and loads the mixed model."""
    import torch

    sync = gradvine.attach(node, model, torch.optim.SGD(model.parameters(), lr=0.0))
    while not sync.done:
        begun = time.perf_counter()
        sync.round()
        times.append(time.perf_counter() - begun)


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    a, b = np.zeros(size, np.float32), np.ones(size, np.float32)
    copies = []
    for _ in range(10):
        begun = time.perf_counter()
        np.copyto(a, b)
        copies.append(time.perf_counter() - begun)
    print(f"parameters            {size:>12}")
    print(f"one copy              {statistics.median(copies) * 1e3:>12.2f} ms")
    ways = [("numpy, in place", lent, arrays), ("numpy, round_copy", copied, arrays)]
    try:
        import torch

        torch.set_num_threads(1)
        ways.append(("torch, attach", hooked, module))
    except ImportError:
        print("torch is not installed: not measured")
    for name, loop, make in ways:
        print(f"{name:<22}{measure(size, loop, make) * 1e3:>12.2f} ms a round")
    print(f"with {TRAINING * 1e3:.0f} ms of training in each round:")
    for name, rule in {
        "d-psgd, order atc": {"rule.kind": "d-psgd", "rule.order": "atc"},
        "d-psgd, order cta": {"rule.kind": "d-psgd", "rule.order": "cta"},
        "delayed by 1": {"rule.kind": "delayed", "rule.delay": 1},
    }.items():
        print(f"{name:<22}{measure(size, trained, arrays, rule) * 1e3:>12.2f} ms a round")


if __name__ == "__main__":
    main()
