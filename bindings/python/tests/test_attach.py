"""What can be attached: the model's own parameters, once, with the same `every` at all sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gradvine
from conftest import everywhere
from test_torch import build, join, linear, normed, rows, train

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn


def test_parameters_are_compared_by_identity(nodes):
    def work(node: int, file: Path) -> gradvine.Result:
        model, other = build(), build()
        joined, inner = join(file, model)
        with pytest.raises(gradvine.SetupError, match="2 of 2 tensors of SGD are not parameters"):
            gradvine.attach(joined, model, torch.optim.SGD(other.parameters(), lr=0.1))
        both = [*model.parameters(), *other.parameters()]
        with pytest.raises(gradvine.SetupError, match="2 of 4 tensors of SGD"):
            gradvine.attach(joined, model, torch.optim.SGD(both, lr=0.1))
        sync = gradvine.attach(joined, model, inner)
        train(sync, model, inner, node)
        return gradvine.finish(sync)

    everywhere(nodes("path:2"), work)


def test_parameters_without_an_optimizer_are_named(nodes, caplog):
    def work(node: int, file: Path) -> gradvine.Result:
        model = build()
        joined = gradvine.join(file, model, rows=32, every=1)
        inner = torch.optim.SGD([model.weight], lr=0.1)
        sync = gradvine.attach(joined, model, inner)
        train(sync, model, inner, node)
        return gradvine.finish(sync)

    everywhere(nodes("path:2"), work)
    assert "1 of the parameters that the nodes train together are in none" in caplog.text
    assert ": bias" in caplog.text


def test_a_parameter_that_was_replaced_is_named(nodes):
    def work(node: int, file: Path) -> gradvine.Result:
        model = build()
        joined, inner = join(file, model)
        sync = gradvine.attach(joined, model, inner)
        kept = model.bias
        model.bias = nn.Parameter(torch.zeros(2))
        with pytest.raises(gradvine.StateError, match="bias is not the parameter with which"):
            inner.step()
        model.bias = kept
        train(sync, model, inner, node)
        return gradvine.finish(sync)

    everywhere(nodes("path:2"), work)


def test_a_buffer_that_was_replaced_is_mixed(nodes):
    """Modules may assign new tensors to their buffers."""

    def work(node: int, file: Path) -> gradvine.Result:
        model = build(normed)
        joined, inner = join(file, model, lr=0.0)
        sync = gradvine.attach(joined, model, inner)
        model.norm.running_mean = torch.full((4,), float(node))
        while not sync.done:
            inner.step()
        return gradvine.finish(sync)

    for result in everywhere(nodes("path:2"), work):
        assert torch.allclose(result.state_dict()["norm.running_mean"], torch.full((4,), 0.5))


def test_a_node_has_one_hook_at_a_time(nodes):
    def work(node: int, file: Path) -> gradvine.Result:
        model = build()
        joined, inner = join(file, model)
        first = gradvine.attach(joined, model, inner)
        with pytest.raises(gradvine.StateError, match="attached to an optimizer already"):
            gradvine.attach(joined, model, inner)
        with pytest.raises(gradvine.StateError, match="attached to an optimizer already"):
            gradvine.attach(joined, model, torch.optim.SGD(model.parameters(), lr=0.1))
        first.detach()
        sync = gradvine.attach(joined, model, inner)
        train(sync, model, inner, node)
        assert (sync.steps, sync.rounds) == (20, 20)
        return gradvine.finish(sync)

    everywhere(nodes("path:2"), work)


def test_steps_of_a_round_are_compared(nodes):
    def join(node: int, file: Path) -> None:
        with pytest.raises(gradvine.SetupError, match="model.every = ") as error:
            gradvine.join(file, build(), rows=32, every=10 + node)
        assert "10" in str(error.value) and "11" in str(error.value)
        assert "file" not in str(error.value).partition("runs another")[2]

    everywhere(nodes("path:2"), join)


def test_several_optimizers(nodes):
    """The steps of the last one count; the change of all is passed on."""

    def work(node: int, file: Path) -> gradvine.Result:
        model = build()
        joined = gradvine.join(file, model, rows=32, every=2)
        inners = [torch.optim.SGD([value], lr=0.1) for value in model.parameters()]
        sync = gradvine.attach(joined, model, inners)
        x, y = rows(node)
        while not sync.done:
            model.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
            for inner in inners:
                inner.step()
        assert (sync.steps, sync.rounds) == (12, 6)
        return gradvine.finish(sync)

    def at_once(node: int, file: Path) -> gradvine.Result:
        model = build()
        joined, inner = join(file, model, every=2)
        sync = gradvine.attach(joined, model, inner)
        train(sync, model, inner, node)
        return gradvine.finish(sync)

    keys = {"run.rounds": 6}
    several, one = (
        everywhere(nodes("path:2", keys), work),
        everywhere(nodes("path:2", keys), at_once),
    )
    assert np.array_equal(several[0].mean, one[0].mean)


class Accelerated(torch.optim.Optimizer):
    """As accelerate's: an optimizer by its class, without what torch's constructor makes."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def step(self, closure=None):
        self.optimizer.step(closure)

    def zero_grad(self, set_to_none=None):
        self.optimizer.zero_grad()


def test_wrapped_optimizers_are_unwrapped(nodes):
    def work(node: int, file: Path) -> gradvine.Result:
        model = build()
        joined = gradvine.join(file, model, rows=32, every=1)
        inner = Accelerated(torch.optim.SGD(model.parameters(), lr=0.1))
        sync = gradvine.attach(joined, model, inner)
        train(sync, model, inner, node)
        with pytest.raises(gradvine.SetupError, match="inner = Linear: expected a torch.optim"):
            gradvine.attach(joined, model, model)
        return gradvine.finish(sync)

    everywhere(nodes("path:2"), work)


def test_names_are_those_of_the_unwrapped_model(nodes):
    """One site compiles its model, one wraps it, one does neither."""

    def work(node: int, file: Path) -> gradvine.Result:
        model = build()
        used: nn.Module = [model, torch.compile(model, backend="eager"), nn.DataParallel(model)][
            node
        ]
        joined = gradvine.join(file, used, rows=32, every=1)
        assert [name for name, _ in joined.tensors] == ["weight", "bias"]
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        sync = gradvine.attach(joined, model if node == 1 else used, inner)
        train(sync, model, inner, node)
        return gradvine.finish(sync)

    for result in everywhere(nodes("ring:3"), work):
        build(lambda: linear(7)).load_state_dict(result.state_dict())


def test_a_compiled_part_and_a_part_called_module():
    from gradvine._layout import Layout

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = nn.Linear(2, 1)
            self.head = torch.compile(nn.Linear(1, 1), backend="eager")

    names = [name for name, *_ in Layout(Holder()).tensors()]
    assert names == ["module.weight", "module.bias", "head.weight", "head.bias"]


def test_models_without_numbers_are_refused():
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    with pytest.raises(gradvine.SetupError, match=r'weight = on the device "meta".*to_empty'):
        gradvine.join("node.toml", model, rows=1)
    with pytest.raises(gradvine.SetupError, match="weight = without a shape.*a batch"):
        gradvine.join("node.toml", nn.LazyLinear(2), rows=1)


def test_results_have_the_state_of_the_module(nodes):
    def work(node: int, file: Path) -> tuple[gradvine.Result, nn.Module]:
        model = build(normed)
        model.first.requires_grad_(False)
        joined, inner = join(file, model)
        sync = gradvine.attach(joined, model, inner)
        train(sync, model, inner, node)
        return gradvine.finish(sync), model

    # In this order the nodes' own models differ at the end.
    for result, model in everywhere(nodes("path:2", {"rule.order": "cta"}), work):
        state = result.state_dict()
        again = normed()
        again.load_state_dict(state)
        for name, value in model.state_dict().items():
            assert torch.equal(state[name], value), name
        own = result.state_dict(result.model)
        assert not torch.equal(own["last.weight"], state["last.weight"])
