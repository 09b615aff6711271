"""Running means and variances under every rule."""

from __future__ import annotations

import logging

import pytest

import gradvine

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn

#: The scale of the rows of each site: variances from 1 to 400.
SCALES = [1.0, 20.0, 3.0, 5.0]
RULES = [rule.name for rule in gradvine.rules()]


def build() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))


def simulate(rule: str, buffers: str = "average") -> gradvine.Simulation:
    """Of the first kind of topology on which the rule runs."""
    compresses = {one.name for one in gradvine.rules() if one.compresses}
    chosen = {"compressor.kind": "top-k"} if rule in compresses else {}
    if rule == "sketched-sgd":
        chosen = {"compressor.kind": "count-sketch"}
    for topology in ("complete:4", "ring:4", "path:4", "star:4"):
        keys = {
            "run.rounds": 25,
            "run.allow_unstable": True,
            "topology.file": topology,
            "rule.kind": rule,
            **chosen,
        }
        model = build()
        inners = [torch.optim.SGD(model.parameters(), lr=0.001) for _ in SCALES]
        dice = [torch.Generator().manual_seed(node) for node in range(4)]

        def train(node, model, inners=inners, dice=dice):
            for _ in range(10):
                x = SCALES[node] * torch.randn(16, 3, generator=dice[node])
                inners[node].zero_grad()
                ((model(x) - 1.0) ** 2).mean().backward()
                inners[node].step()
            return 0.0, 0.01

        try:
            return gradvine.simulate(keys, model, train, rows=[1] * 4, buffers=buffers)
        except gradvine.SetupError as error:
            refused = error
    raise refused


@pytest.mark.parametrize("rule", RULES)
def test_variances_stay_within_those_of_the_sites(rule, caplog):
    caplog.set_level(logging.WARNING)
    end = simulate(rule)
    local = ["ad-psgd", "swarm", "stale-synchronous"]
    local += ["clipped-gossip", "trimmed-mean"]
    assert ("each node keeps its own until the end" in caplog.text) == (rule in local)
    variances = [end.state_dict(model)["0.running_var"] for model in end.models]
    mean = end.state_dict()["0.running_var"]
    for variance in [*variances, mean]:
        assert (variance > 0.5).all() and (variance < 600.0).all(), (rule, variance)
    all_sites = torch.stack(variances)
    if rule in ["clipped-gossip", "trimmed-mean"]:
        # Their mean leaves out the least and the greatest of each number.
        all_sites = all_sites.sort(dim=0).values[1:-1]
    assert torch.allclose(all_sites.mean(dim=0), mean, rtol=1e-5)
    apart = (torch.stack(variances) / mean).std(dim=0).max()
    assert (apart > 1.0) == (rule in local), "statistics are averaged, or stay local"
