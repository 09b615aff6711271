"""Training loops of torch."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gradvine
from conftest import everywhere

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn


def linear(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(3, 2)


lock = threading.Lock()


def build(make: Callable[[], nn.Module] = linear) -> nn.Module:
    with lock:  # torch's seed is global
        return make()


def join(file: Path, model: nn.Module, *, every: int = 1, lr: float = 0.1):
    """A node of a model, and SGD."""
    joined = gradvine.join(file, model, rows=32, every=every)
    return joined, torch.optim.SGD(model.parameters(), lr=lr)


def rows(node: int, count: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of a linear function that differs between nodes."""
    generator = torch.Generator().manual_seed(100 + node)
    x = torch.randn(count, 3, generator=generator)
    return x, x @ torch.full((3, 2), float(node + 1))


def train(sync, model, optimizer, node: int, steps: int = 10_000) -> None:
    """Full-batch steps until the rounds are over."""
    x, y = rows(node)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        sync.record(loss.item())
        optimizer.step()
        if sync.done:
            return


def run(files, build, *, every=1, optimizer=None, steps=10_000, **options):
    """Trains on every node; returns (result, sync, model) of each."""

    def work(node: int, file: Path):
        with lock:
            model = build()
        chosen = {key: value for key, value in options.items() if key in ("parameters", "buffers")}
        if callable(chosen.get("parameters")):
            chosen["parameters"] = chosen["parameters"](model)
        joined = gradvine.join(file, model, rows=32, every=every, **chosen)
        make = optimizer or (lambda values: torch.optim.SGD(values, lr=0.1))
        inner = make([value for value in model.parameters() if value.requires_grad])
        sync = gradvine.attach(joined, model, inner)
        train(sync, model, inner, node, steps)
        return gradvine.finish(sync, evaluate=options.get("evaluate")), sync, model

    return everywhere(files, work)


def agree(files, work) -> list[gradvine.Result]:
    """The results of the nodes, which have the same digest."""
    results = everywhere(files, work)
    assert len({result.digest for result in results}) == 1
    return results


def test_steps_and_rounds_follow_the_equation_of_the_rule(nodes):
    """D-PSGD, W of a ring of 3, gradients by hand in f64."""
    ends = run(nodes("ring:3", {"run.rounds": 15, "rule.order": "cta"}), linear)
    start = linear()
    w = np.stack([start.weight.detach().double().numpy()] * 3)
    b = np.stack([start.bias.detach().double().numpy()] * 3)
    mix = np.full((3, 3), 1 / 3)
    data = [tuple(part.double().numpy() for part in rows(node)) for node in range(3)]
    for _ in range(15):
        gradients = []
        for (x, y), w_i, b_i in zip(data, w, b, strict=True):
            error = 2 * (x @ w_i.T + b_i - y) / y.size
            gradients.append((error.T @ x, error.sum(axis=0)))
        w = np.einsum("ij,jkl->ikl", mix, w) - 0.1 * np.stack([g[0] for g in gradients])
        b = mix @ b - 0.1 * np.stack([g[1] for g in gradients])
    for node, (result, _, model) in enumerate(ends):
        expected = np.concatenate([w[node].ravel(), b[node]])
        np.testing.assert_allclose(result.model, expected, rtol=0, atol=2e-5)
        # finish loads the mean into the model.
        mean = np.concatenate([w.mean(axis=0).ravel(), b.mean(axis=0)])
        loaded = torch.cat([value.detach().reshape(-1) for value in model.parameters()])
        np.testing.assert_allclose(loaded.numpy(), mean, rtol=0, atol=2e-5)
        assert np.array_equal(loaded.numpy(), result.mean)
        assert result.digest == ends[0][0].digest


def test_any_optimizer_with_several_steps_a_round(nodes):
    seen = []
    ends = run(
        nodes("ring:3", {"run.rounds": 8, "rule.kind": "choco", "compressor.kind": "top-k"}),
        linear,
        every=5,
        optimizer=lambda values: torch.optim.AdamW(values, lr=0.05),
        evaluate=lambda model: seen.append(threading.get_ident()) or {"size": 1.0},
    )
    for result, sync, _ in ends:
        assert (result.rounds, sync.steps, sync.rounds) == (8, 40, 8)
        assert result.metrics["measures"]["size"]["of_mean"] == 1.0
        assert result.metrics["measures"]["size"]["mean"] == 1.0
        assert result.digest == ends[0][0].digest
    # Twice on each node: its own model and the mean.
    assert len(seen) == 6


def test_schedulers_and_gradient_accumulation_work_as_before(nodes):
    def work(node: int, file: Path):
        model = build()
        joined, inner = join(file, model, every=2)
        schedule = torch.optim.lr_scheduler.StepLR(inner, step_size=4, gamma=0.5)
        sync = gradvine.attach(joined, model, inner)
        x, y = rows(node)
        while not sync.done:
            for half in (slice(0, 16), slice(16, 32)):
                (((model(x[half]) - y[half]) ** 2).mean() / 2).backward()
            inner.step()
            inner.zero_grad()
            schedule.step()
        assert sync.steps == 12 and schedule.get_last_lr() == [0.1 / 8]
        return gradvine.finish(sync)

    agree(nodes("path:2", {"run.rounds": 6}), work)


def test_steps_that_a_scaler_skips_make_no_round(nodes):
    def work(node: int, file: Path):
        model = build()
        joined, inner = join(file, model)
        sync = gradvine.attach(joined, model, inner)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        x, y = rows(node)
        attempts = 0
        while not sync.done:
            attempts += 1
            inner.zero_grad()
            loss = ((model(x) - y) ** 2).mean() * (math.inf if attempts == 2 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(inner)
            scaler.update()
        assert (attempts, sync.steps) == (6, 5)
        return gradvine.finish(sync)

    everywhere(nodes("path:2", {"run.rounds": 5}), work)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_a_model_that_does_not_train_does_not_move(nodes, dtype):
    """Rounding to the model's type is no change of the model, whatever mixing gives."""
    ends = run(
        nodes("ring:3", {"run.rounds": 30}),
        lambda: linear().to(dtype),
        optimizer=lambda values: torch.optim.SGD(values, lr=0.0),
        steps=0,
    )
    # Without a step no round was made: finish ends the rounds with empty updates.
    start = torch.cat(
        [value.detach().float().reshape(-1) for value in linear().to(dtype).parameters()]
    )
    for result, _, model in ends:
        assert np.allclose(result.mean, start.numpy(), rtol=0, atol=1e-7)
        assert all(value.dtype == dtype for value in model.parameters())


def test_half_precision_measures_against_the_loaded_numbers(nodes):
    """x is f32 and not a bf16 number; a step of zero gives an update of exactly zero."""

    def work(node: int, file: Path):
        model = build(lambda: linear().to(torch.bfloat16))
        joined, inner = join(file, model, lr=1.0)
        sync = gradvine.attach(joined, model, inner)
        for value in model.parameters():
            # Differs between the nodes: their mean is between two bf16 numbers.
            value.grad = torch.full_like(value, 2.0**-8 * (node + 1))
        inner.step()
        x = joined.x.copy()
        assert any(x != torch.from_numpy(x).to(torch.bfloat16).float().numpy())
        while not sync.done:
            for value in model.parameters():
                value.grad = torch.zeros_like(value)
            inner.step()
        return x, gradvine.finish(sync)

    ends = everywhere(nodes("path:2", {"run.rounds": 20}), work)
    for _, result in ends:
        # After one round both nodes are near their mean; later rounds only average.
        np.testing.assert_allclose(
            result.mean, np.mean([end[0] for end in ends], axis=0), atol=1e-6
        )


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(x)).relu())


def normed() -> nn.Module:
    torch.manual_seed(1)
    return Normed()


@pytest.mark.parametrize("buffers", ["average", "local"])
def test_buffers_are_averaged_or_local(nodes, buffers):
    ends = run(nodes("ring:3", {"run.rounds": 6}), normed, buffers=buffers)
    variances = [model.norm.running_var for _, _, model in ends]
    same = all(torch.equal(variance, variances[0]) for variance in variances)
    assert same == (buffers == "average")
    names = [name for name, _ in ends[0][1].node.tensors]
    assert ("norm.running_var" in names) == (buffers == "average")
    assert "norm.num_batches_tracked" not in names


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


def test_tied_parameters_are_one_tensor_and_stay_tied():
    from gradvine._layout import Layout

    layout = Layout(Tied())
    assert layout.tensors() == [("embed.weight", [5, 3], False)]
    assert layout.agreed() == {"tied.embed.weight": "head.weight"}


def adapted() -> nn.Module:
    """A frozen layer with a low-rank adapter."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    return model


def test_frozen_parameters_stay_and_are_compared(nodes):
    ends = run(nodes("path:2", {"run.rounds": 5}), adapted)
    for _, sync, model in ends:
        assert [name for name, _ in sync.node.tensors] == ["1.weight", "1.bias"]
        assert torch.equal(model[0].weight, adapted()[0].weight)

    def join(node: int, file: Path) -> None:
        with lock:
            model = adapted()
        if node == 1:
            with torch.no_grad():
                model[0].weight[0, 0] += 1.0
        with pytest.raises(gradvine.SetupError, match="model.frozen = 2 tensors, SHA-256"):
            gradvine.join(file, model, rows=32)

    everywhere(nodes("path:2"), join)


def test_parameters_can_be_chosen(nodes):
    ends = run(
        nodes("path:2", {"run.rounds": 5}),
        normed,
        parameters=lambda model: model.last.parameters(),
        buffers="local",
    )
    assert [name for name, _ in ends[0][1].node.tensors] == ["last.weight", "last.bias"]
    # The first layer was trained too, but stays local.
    assert not torch.equal(ends[0][2].first.weight, ends[1][2].first.weight)
    assert torch.equal(ends[0][2].last.weight, ends[1][2].last.weight)


def test_initial_values_that_differ_are_refused_unless_one_node_gives_them(nodes):
    def start(node: int) -> nn.Module:
        return build(lambda: linear(seed=node))

    def refused(node: int, file: Path) -> None:
        with pytest.raises(gradvine.SetupError, match="model.initial"):
            gradvine.join(file, start(node), rows=32)

    def given(node: int, file: Path):
        model = start(node)
        joined, inner = join(file, model)
        sync = gradvine.attach(joined, model, inner)
        assert torch.equal(model.weight, start(1).weight)
        train(sync, model, inner, node)
        return gradvine.finish(sync)

    everywhere(nodes("path:2"), refused)
    agree(nodes("path:2", {"model.init": "from:1"}), given)


def test_a_parameter_that_is_not_finite_is_named_and_the_run_can_go_on(nodes):
    def work(node: int, file: Path):
        model = build()
        joined, inner = join(file, model)
        sync = gradvine.attach(joined, model, inner)
        with torch.no_grad():
            model.bias[1] = math.nan
        with pytest.raises(gradvine.UpdateError, match=r"bias\[1\] of the update is nan"):
            sync.round()
        sync.reset()
        assert torch.isfinite(model.bias).all()
        train(sync, model, inner, node)
        return gradvine.finish(sync)

    results = agree(nodes("path:2"), work)
    assert np.isfinite(results[0].mean).all()


def test_rules_that_use_the_step_size_need_it_stated(nodes):
    def work(node: int, file: Path):
        model = build()
        joined = gradvine.join(file, model, rows=32, every=1)
        inner = torch.optim.AdamW(model.parameters(), lr=0.01)
        with pytest.raises(gradvine.SetupError, match='gradient-tracking .* state size="lr"'):
            gradvine.attach(joined, model, inner)
        sync = gradvine.attach(joined, model, inner, size="lr")
        train(sync, model, inner, node)
        return gradvine.finish(sync)

    agree(nodes("path:2", {"rule.kind": "gradient-tracking"}), work)


def test_what_cannot_be_kept_is_refused(nodes):
    def work(node: int, file: Path):
        model = build()
        joined, inner = join(file, model)
        with pytest.raises(gradvine.SetupError, match="dict: expected objects with state_dict"):
            gradvine.attach(joined, model, inner, keep=[{}])
        with pytest.raises(gradvine.SetupError, match="checkpoint.every_rounds"):
            gradvine.attach(joined, model, inner, keep=[])
        sync = gradvine.attach(joined, model, inner)
        train(sync, model, inner, node)
        return gradvine.finish(sync)

    agree(nodes("path:2"), work)


def test_misuse_is_refused_with_what_to_do(nodes):
    def work(node: int, file: Path):
        model, other = build(), build()
        joined, inner = join(file, model)
        with pytest.raises(gradvine.StateError, match="module that the node joined with"):
            gradvine.attach(joined, other, inner)
        with pytest.raises(gradvine.SetupError, match="every = 0"):
            gradvine.join(file, model, rows=32, every=0)
        with pytest.raises(gradvine.SetupError, match="joined with every = 1; expected in join"):
            gradvine.attach(joined, model, inner, every=2)
        with pytest.raises(gradvine.SetupError, match="size = big"):
            gradvine.attach(joined, model, inner, size="big")
        sync = gradvine.attach(joined, model, inner)
        model.to(torch.float64)
        with pytest.raises(gradvine.StateError, match="convert the model before join"):
            sync.round()
        model.to(torch.float32)
        sync.reset()
        train(sync, model, inner, node)
        with pytest.raises(gradvine.StateError, match="leave the loop"):
            inner.step()
        return gradvine.finish(sync)

    everywhere(nodes("path:2"), work)
    with pytest.raises(gradvine.SetupError, match="requires a gradient"):
        gradvine.join("node.toml", linear().requires_grad_(False), rows=1)
    with pytest.raises(gradvine.SetupError, match="nn.Module"):
        gradvine.join("node.toml", 7, rows=1)
    with pytest.raises(gradvine.SetupError, match="lost"):
        gradvine.join("node.toml", linear(), rows=1, parameters=["lost"])


def test_tensors_of_a_device_are_staged():
    """The code for devices, with tensors of the CPU."""
    from gradvine._layout import Layout

    model = normed().to(torch.bfloat16)
    layout = Layout(model)
    values = [entry.value.detach() for entry in layout.entries]
    staged = layout._stage(values)
    for value, copy in zip(values, staged, strict=True):
        assert copy.dtype == torch.float32 and torch.equal(copy, value.float())


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


class Deep(nn.Module):
    """A model with statistics, of which a part has 16 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 64)
        self.norm = nn.BatchNorm1d(64)
        self.last = nn.Linear(64, 2).to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(x)))
        return self.last(hidden.to(torch.bfloat16)).float()


def deep() -> nn.Module:
    torch.manual_seed(4)
    return Deep()


def train_on(device: str, files: list[Path]) -> list[gradvine.Result]:
    """The results of nodes whose models are on a device."""

    def work(node: int, file: Path):
        model = build(deep).to(device)
        joined, inner = join(file, model, lr=0.05)
        sync = gradvine.attach(joined, model, inner)
        x, y = (part.to(device) for part in rows(node))
        while not sync.done:
            inner.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            inner.step()
            assert all(value.device.type == device for value in model.parameters())
        return gradvine.finish(sync)

    return agree(files, work)


@gpu
@pytest.mark.parametrize("rule", ["d-psgd", "choco", "diloco"])
def test_a_model_on_a_gpu_is_that_on_the_cpu(nodes, rule):
    """To the rounding of the device: sums of a GPU have another order."""
    keys = {"rule.kind": rule, "run.rounds": 10}
    if rule == "choco":
        keys["compressor.kind"] = "qsgd"
    means = [train_on(device, nodes("ring:3", keys))[0].mean for device in ("cpu", "cuda")]
    scale = np.abs(means[0]).max()
    # A number of 16 bits may round to the other side.
    np.testing.assert_allclose(means[1], means[0], rtol=0, atol=scale * 2**-7)
    assert not np.array_equal(means[0], np.zeros_like(means[0]))


@gpu
def test_what_a_gpu_still_computes_is_awaited():
    """A long queue of products ends in the parameters: the node has the numbers after them."""
    from gradvine._layout import Layout

    model = nn.Linear(4096, 4096, bias=False).to("cuda")
    layout = Layout(model)
    a = torch.eye(4096, device="cuda") * 1.0009765625
    for _ in range(3):
        with torch.no_grad():
            model.weight.fill_(1.0)
            product = model.weight
            for _ in range(20):
                product = product @ a
            model.weight.copy_(product)
        (staged,) = [value.clone() for value in layout._values()]
        assert torch.equal(staged, model.weight.detach().cpu())
        assert staged.min() > 1.01


def test_the_state_of_the_hook_is_saved(nodes):
    def work(node: int, file: Path):
        model = build()
        joined, inner = join(file, model, every=3)
        sync = gradvine.attach(joined, model, inner)
        sync.load_state_dict({"steps": 2, "every": 3})
        train(sync, model, inner, node, steps=1)
        assert sync.rounds == 1 and sync.state_dict() == {"steps": 3, "every": 3}
        with pytest.raises(gradvine.SetupError, match="every = 4"):
            sync.load_state_dict({"steps": 2, "every": 4})
        return gradvine.finish(sync)

    everywhere(nodes("path:2", {"run.rounds": 4}), work)


def test_the_mean_in_the_middle_of_a_run(nodes):
    """All sites have the same, and can decide the same: here, to end early."""

    def work(node: int, file: Path):
        with lock:
            model, copy = normed(), normed()
        joined, inner = join(file, model, every=2, lr=0.05)
        sync = gradvine.attach(joined, model, inner)
        assert sync.mean() is None
        means, x, y = [], *rows(node)
        while not sync.done:
            inner.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            inner.step()
            mean = sync.mean()
            assert (mean is not None) == (sync.synced and sync.rounds % 5 == 0)
            if mean is not None:
                copy.load_state_dict(mean)
                own = {name: value.clone() for name, value in model.state_dict().items()}
                means.append((sync.rounds, mean, own))
            if len(means) == 2:
                break
        return means, gradvine.finish(sync)

    keys = {"run.rounds": 100, "run.mean_every": 5, "rule.order": "cta"}
    ends = everywhere(nodes("ring:3", keys), work)
    for means, result in ends:
        assert [rounds for rounds, *_ in means] == [5, 10]
        assert result.rounds < 20 and result.digest == ends[0][1].digest
        for place, (_, mean, _) in enumerate(means):
            at_all = [end[0][place] for end in ends]
            for name in mean:
                if "num_batches" not in name:
                    assert torch.equal(mean[name], at_all[0][1][name])
                    models = torch.stack([own[name] for _, _, own in at_all])
                    assert torch.allclose(mean[name], models.mean(dim=0), rtol=1e-5, atol=1e-6)
                    assert not torch.equal(models[0], models[1])
