"""A model of 400 MB between two sites on this machine: time of a round and memory of a site.

    python benches/large.py                    # 100 million parameters, two rules
    python benches/large.py 25000000 --rounds 8
    python benches/large.py --device cuda      # both models on one GPU

Each site is a process with a transformer (torch, float32, SGD) that trains on random tokens: the
time of training is real, its result means nothing. Nodes exchange over libp2p on loopback.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import gradvine

VOCABULARY = 1024
LENGTH = 64
WIDTH = 1024
RULES: dict[str, dict[str, object]] = {
    "d-psgd": {"rule.kind": "d-psgd"},
    "choco, 4 bits": {
        "rule.kind": "choco",
        "compressor.kind": "min-max",
        "compressor.bits": 4,
    },
    "sparse-loco, 2 bits": {
        "rule.kind": "sparse-loco",
        "rule.collective": "all-to-all",
        "compressor.kind": "chunked-top-k",
    },
}


class Model(nn.Module):
    """As many layers of a transformer as it takes to have about this many parameters."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        each = sum(p.numel() for p in layer.parameters())
        layers = max(1, round((parameters - 2 * VOCABULARY * WIDTH) / each))
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.tokens(x)))


def peak() -> float:
    """The most memory that this process had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def run_site(file: str, arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    device = arguments.device
    model = Model(arguments.parameters).to(device)
    inner = torch.optim.SGD(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(int(Path(file).parent.name))

    def train() -> float:
        begun = time.perf_counter()
        tokens = torch.randint(VOCABULARY, (1, LENGTH + 1), generator=generator).to(device)
        inner.zero_grad()
        scores = model(tokens[:, :-1])
        nn.functional.cross_entropy(scores[0], tokens[0, 1:]).backward()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begun

    train()
    alone = peak()
    begun = time.perf_counter()
    node = gradvine.join(file, model, rows=1, every=arguments.every)
    start = time.perf_counter() - begun
    sync = gradvine.attach(node, model, inner)
    training: list[float] = []
    rounds: list[float] = []
    while not sync.done:
        training.append(train())
        begun = time.perf_counter()
        inner.step()
        if sync.synced:
            rounds.append(time.perf_counter() - begun)
    sent = sync.report.bytes_payload / node.rounds
    begun = time.perf_counter()
    result = gradvine.finish(sync)
    end = time.perf_counter() - begun
    print(
        json.dumps(
            {
                "parameters": sum(p.numel() for p in model.parameters()),
                "step": statistics.median(training),
                "round": statistics.median(rounds[1:]),
                "sent": sent,
                "start": start,
                "end": end,
                "alone": alone,
                "peak": peak(),
                "digest": result.digest[:16],
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parameters", type=int, nargs="?", default=100_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--every", type=int, default=2, help="steps per round")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rules", nargs="+", choices=list(RULES), help="only these")
    parser.add_argument("--site", metavar="FILE", help="run one site with its node.toml")
    arguments = parser.parse_args()
    if arguments.site:
        run_site(arguments.site, arguments)
        return
    begun = time.perf_counter()
    torch.ones(arguments.parameters).clone()
    print(f"{'':22}{'parameters':>12}{'a step':>9}{'a round':>9}{'MB sent':>9}", end="")
    print(f"{'start':>9}{'end':>9}{'GB alone':>10}{'GB peak':>9}")
    for name in arguments.rules or RULES:
        rule = RULES[name]
        experiment = {
            "run.rounds": arguments.rounds,
            "run.evaluate_every": arguments.rounds,
            "topology.file": "complete:2",
            **rule,
        }
        with tempfile.TemporaryDirectory() as folder:
            files = gradvine.local_nodes(Path(folder) / "sites", experiment)
            command = [sys.executable, __file__, *sys.argv[1:], "--site"]
            sites = [
                subprocess.Popen([*command, str(file)], stdout=subprocess.PIPE, text=True)
                for file in files
            ]
            ends = [json.loads(site.communicate()[0]) for site in sites]
        assert len({end["digest"] for end in ends}) == 1, "all sites end with the same models"
        worst = {key: max(end[key] for end in ends) for key in ends[0]}
        print(f"{name:22}{worst['parameters']:>12}{worst['step']:>7.2f} s", end="")
        print(f"{worst['round']:>7.2f} s{worst['sent'] / 1e6:>9.1f}", end="")
        print(f"{worst['start']:>7.2f} s{worst['end']:>7.2f} s", end="")
        print(f"{worst['alone']:>10.2f}{worst['peak']:>9.2f}", flush=True)
    print(f"in {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
