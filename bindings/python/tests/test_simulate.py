"""The simulator with training in Python."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import numpy as np
import pytest

import gradvine
from conftest import Bowl, everywhere, model

EXPERIMENT = {
    "run.rounds": 20,
    "run.evaluate_every": 5,
    "topology.file": "ring:3",
    "rule.kind": "choco",
    "compressor.kind": "min-max",
    "compressor.bits": 4,
}


def bowls(count: int = 3):
    nodes = [Bowl(node) for node in range(count)]

    def train(node: int, x: np.ndarray) -> tuple[np.ndarray, float, float]:
        away = x - nodes[node].centre
        return away * np.float32(0.25), float((away**2).sum() / 2), 0.25

    return train


def test_a_simulated_run_has_the_digest_of_the_real_one(nodes):
    keys = {key: value for key, value in EXPERIMENT.items() if not key.startswith("topology")}

    def real(node: int, file: Path) -> gradvine.Result:
        bowl = Bowl(node)
        with gradvine.join(file, model(), rows=1) as joined:
            while not joined.done:
                bowl.step(joined)
            return joined.finish()

    results = everywhere(nodes("ring:3", keys), real)
    simulated = gradvine.simulate(EXPERIMENT, model(), bowls(), rows=[1, 1, 1])
    assert simulated.digest == results[0].digest
    assert np.array_equal(simulated.mean, results[0].mean)
    for node, result in enumerate(results):
        assert np.array_equal(simulated.models[node], result.model)


def test_evaluations_show_virtual_time_and_consensus():
    slow = {"network.latency_ms": 50, "network.compute": "fixed", "network.compute_ms": 10}
    simulated = gradvine.simulate(
        {**EXPERIMENT, **slow},
        model(),
        bowls(),
        rows=[1, 1, 1],
        evaluate=lambda x: {"norm": float(np.linalg.norm(x))},
    )
    assert [one.rounds for one in simulated.curve] == [5, 10, 15, 20]
    # The setup goes up and down a tree; then a round is a gradient of 10 ms and a frame.
    assert simulated.curve[-1].time_s == pytest.approx(2 * 0.05 + 20 * (0.01 + 0.05), rel=0.01)
    assert simulated.curve[-1].measures["norm"] == pytest.approx(np.linalg.norm(simulated.mean))
    assert simulated.curve[-1].loss < simulated.curve[0].loss
    assert simulated.curve[-1].bytes_payload > simulated.curve[0].bytes_payload > 0
    assert simulated.metrics["measures"]["norm"]["of_mean"] == pytest.approx(
        np.linalg.norm(simulated.mean)
    )
    again = gradvine.simulate({**EXPERIMENT, **slow}, model(), bowls(), rows=[1, 1, 1])
    assert (again.trace, again.digest) == (simulated.trace, simulated.digest)


def test_wrong_calls_raise_with_the_reason():
    with pytest.raises(gradvine.SetupError, match="gradients = 2: the topology has 3 nodes"):
        gradvine.simulate(EXPERIMENT, model(), bowls(), rows=[1, 1])
    with pytest.raises(gradvine.SetupError, match="at least 1"):
        gradvine.simulate(EXPERIMENT, model(), bowls(), rows=[1, 0, 1])
    with pytest.raises(gradvine.SetupError, match="choco"):
        gradvine.simulate({**EXPERIMENT, "rule.kind": "chocolate"}, model(), bowls(), rows=[1] * 3)
    with pytest.raises(gradvine.SetupError, match="network.compute"):
        measured = {**EXPERIMENT, "network.compute": "measured"}
        gradvine.simulate(measured, model(), bowls(), rows=[1] * 3)
    with pytest.raises(gradvine.UpdateError, match="9 numbers"):
        gradvine.simulate(EXPERIMENT, model(), lambda node, x: x[:9], rows=[1] * 3)
    with pytest.raises(gradvine.UpdateError, match="finite"):
        gradvine.simulate(EXPERIMENT, model(), lambda node, x: x + math.nan, rows=[1] * 3)


def test_exceptions_of_the_training_are_raised():
    calls = []

    def train(node: int, x: np.ndarray) -> np.ndarray:
        calls.append(node)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return x

    with pytest.raises(KeyboardInterrupt):
        gradvine.simulate(EXPERIMENT, model(), train, rows=[1] * 3)
    assert len(calls) <= 10

    def broken(x: np.ndarray) -> float:
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        gradvine.simulate(EXPERIMENT, model(), bowls(), rows=[1] * 3, evaluate=broken)


def test_torch_modules_are_trained_in_place(nodes):
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def build() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Linear(3, 2)

    def rows(node: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(node)
        x = torch.randn(16, 3, generator=generator)
        return x, x * (node + 1) @ torch.ones(3, 2)

    def steps(module: torch.nn.Module, inner: torch.optim.Optimizer, node: int) -> float:
        x, y = rows(node)
        inner.zero_grad()
        loss = ((module(x) - y) ** 2).mean()
        loss.backward()
        inner.step()
        return loss.item()

    module = build()
    inners = [torch.optim.AdamW(module.parameters(), lr=0.05) for _ in range(3)]
    keys = {**EXPERIMENT, "rule.kind": "noloco"}
    keys = {key: value for key, value in keys.items() if not key.startswith("compressor")}
    simulated = gradvine.simulate(
        keys,
        module,
        lambda node, module: steps(module, inners[node], node),
        rows=[16] * 3,
        evaluate=lambda module: module.bias[0].item(),
    )

    lock = threading.Lock()

    def real(node: int, file: Path) -> gradvine.Result:
        with lock:
            own = build()
        joined = gradvine.join(file, own, rows=16, every=1)
        inner = torch.optim.AdamW(own.parameters(), lr=0.05)
        sync = gradvine.attach(joined, own, inner)
        while not sync.done:
            steps(own, inner, node)
        return gradvine.finish(sync)

    only = {key: value for key, value in keys.items() if not key.startswith("topology")}
    results = everywhere(nodes("ring:3", only), real)
    assert simulated.digest == results[0].digest
    assert "score" in simulated.curve[0].measures


@pytest.mark.parametrize(
    "unused",
    [
        {"run.out": "somewhere"},
        {"data.split": "by-label"},
        {"model.kind": "mlp"},
        {"optimizer.step": 0.1},
        {"optimizer": {"step": 0.1}},
    ],
)
def test_keys_without_effect_are_refused(unused):
    experiment = {"topology.file": "ring:4", "rule.kind": "d-psgd", "run.rounds": 3, **unused}
    with pytest.raises(gradvine.SetupError, match="has no effect here") as raised:
        gradvine.simulate(experiment, {"w": np.zeros(3)}, lambda node, x: x, rows=[1] * 4)
    key, value = next(iter(unused.items()))
    place = f"{key}.{next(iter(value))}" if isinstance(value, dict) else key
    assert raised.value.place == place
