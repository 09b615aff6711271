"""Four sites train a small transformer on text that differs between them, with AdamW inside.

    python text.py                      # all ways below, in virtual time
    python text.py --ways noloco        # one of them

Each site has the source of another package of Python's library, and makes 50 steps of AdamW between
two rounds over links between four regions (topologies/four-regions.toml). The score is the loss on
text of all four packages that no site trains on. Python 3.11 and torch 2.15 print, on one core of a
CPU and in some fifteen minutes (24 rounds):

                               test loss  kB a round   virtual
    alone                          1.841           -         -
    pooled                         1.451           -         -
    d-psgd                         1.589         966      35 s
    choco, 4 bits                  1.588         125      29 s
    noloco                         1.576         966      35 s
    gasloc                         1.511         966      35 s
    sparse-loco, 2 bits            2.134           8      28 s
    streaming-diloco, 4 bits       1.503         187      24 s
    diloco, all-reduce             1.529         724      43 s

"pooled" is training in one place on the batches of all sites: each step sees four times the rows.
sparse-loco sends 64 of 4096 numbers in a round: after 24 rounds most have not moved yet, and
AdamW changes all by about as much. study.py repeats this with other seeds and draws the curves.
"""

from __future__ import annotations

import argparse
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import gradvine

PACKAGES = ["asyncio", "email", "unittest", "multiprocessing"]
STEPS = 50
RATE = 2e-3
#: Of streaming-diloco.
FRAGMENTS = 5
TOPOLOGIES = Path(__file__).parents[2] / "topologies"
#: A ring of four regions with the latencies and rates of their links; and all pairs.
RING = str(TOPOLOGIES / "four-regions.toml")
ALL_PAIRS = str(TOPOLOGIES / "four-regions-all.toml")


@dataclass(frozen=True)
class Size:
    """Of the model and of a step."""

    width: int = 64
    blocks: int = 2
    #: Characters of a window.
    length: int = 64
    #: Windows of a step.
    batch: int = 16
    #: What a step takes in virtual time.
    step_ms: float = 20.0


DEFAULT = Size()


def read(package: str) -> torch.Tensor:
    """The text of a package, as numbers from 0 to 127."""
    folder = Path(sysconfig.get_paths()["stdlib"]) / package
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    return torch.tensor([ord(letter) for letter in text if ord(letter) < 128])


class Block(nn.Module):
    """Attention to what came before, then a network for each position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        parts = self.mix(self.norms[0](x)).view(rows, length, 3, 2, width // 2)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.network(self.norms[1](x))


class Transformer(nn.Module):
    """Predicts the next character: with two blocks of 64, some 120,000 parameters."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.letters = nn.Embedding(128, width)
        self.places = nn.Embedding(size.length, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(size.blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = self.places(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(self.letters(x) + places)))


def build(seed: int = 1, size: Size = DEFAULT) -> Transformer:
    """The same initial values at every site."""
    torch.manual_seed(seed)
    return Transformer(size)


class Site:
    """A site's text and batches."""

    def __init__(self, text: torch.Tensor, seed: int, size: Size) -> None:
        self.text = text
        self.size = size
        self.windows = text.unfold(0, size.length + 1, 1)
        self.generator = torch.Generator().manual_seed(seed)

    def loss(self, model: nn.Module) -> torch.Tensor:
        """The loss on the next batch."""
        starts = torch.randint(len(self.windows), (self.size.batch,), generator=self.generator)
        return cross_entropy(model, self.windows[starts])


def cross_entropy(model: nn.Module, windows: torch.Tensor) -> torch.Tensor:
    scores = model(windows[:, :-1]).flatten(0, 1)
    return nn.functional.cross_entropy(scores, windows[:, 1:].flatten())


def load(seed: int = 1, size: Size = DEFAULT) -> tuple[list[Site], torch.Tensor]:
    """The sites with their text, and the windows of the test: the last tenth of each text."""
    texts = [read(package) for package in PACKAGES]
    sites = [
        Site(text[: len(text) * 9 // 10], 1000 * seed + site, size)
        for site, text in enumerate(texts)
    ]
    rests = [text[len(text) * 9 // 10 :] for text in texts]
    window = size.length + 1
    windows = [rest[: len(rest) // window * window] for rest in rests]
    least = min(len(one) // window for one in windows)
    return sites, torch.cat([one.view(-1, window)[:least] for one in windows])


def test(model: nn.Module, windows: torch.Tensor) -> dict[str, float]:
    with torch.no_grad():
        losses = [cross_entropy(model, part) for part in windows.split(256)]
    sizes = [len(part) for part in windows.split(256)]
    total = sum(loss.item() * size for loss, size in zip(losses, sizes, strict=True))
    return {"loss": total / len(windows)}


def train_alone(steps: int, pooled: bool, seed: int = 1) -> float:
    """One model in one place: on one site's text, or on the batches of all sites at once."""
    sites, windows = load(seed)
    model = build(seed)
    inner = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    used = sites if pooled else sites[:1]
    for _ in range(steps):
        inner.zero_grad()
        for site in used:
            (site.loss(model) / len(used)).backward()
        inner.step()
    return test(model, windows)["loss"]


def train_together(
    rule: dict[str, object],
    rounds: int,
    seed: int = 1,
    evaluations: int = 1,
    steps: int = STEPS,
    rate: float = RATE,
    size: Size = DEFAULT,
) -> gradvine.Simulation:
    """All four sites. ``rounds`` counts rounds of ``steps``, also for a rule with shorter ones."""
    sites, windows = load(seed, size)
    model = build(seed, size)
    inners = [torch.optim.AdamW(model.parameters(), lr=rate, fused=True) for _ in sites]
    # A fragment of the model travels in each round of streaming-diloco.
    parts = int(str(rule.get("rule.fragments", 1)))

    def train(node: int, model: nn.Module) -> float:
        losses = []
        for _ in range(steps // parts):
            inners[node].zero_grad()
            loss = sites[node].loss(model)
            loss.backward()
            inners[node].step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    experiment = {
        "run.seed": seed,
        "run.rounds": rounds * parts,
        "run.evaluate_every": max(rounds * parts // evaluations, 1),
        "network.compute": "fixed",
        "network.compute_ms": steps // parts * size.step_ms,
        "topology.file": RING,
        **rule,
    }
    return gradvine.simulate(
        experiment,
        model,
        train,
        rows=[len(site.text) for site in sites],
        evaluate=lambda model: test(model, windows),
    )


#: The rules to compare; alone and pooled are training in one place.
WAYS: dict[str, tuple[str, dict[str, object] | None]] = {
    "alone": ("alone", None),
    "pooled": ("pooled", None),
    "d-psgd": ("d-psgd", {"rule.kind": "d-psgd"}),
    "choco": (
        "choco, 4 bits",
        {"rule.kind": "choco", "compressor.kind": "min-max", "compressor.bits": 4},
    ),
    "noloco": ("noloco", {"rule.kind": "noloco"}),
    "gasloc": ("gasloc", {"rule.kind": "gasloc"}),
    "sparse-loco": (
        "sparse-loco, 2 bits",
        {
            "rule.kind": "sparse-loco",
            "rule.collective": "all-to-all",
            "topology.file": ALL_PAIRS,
            "compressor.kind": "chunked-top-k",
        },
    ),
    "streaming-diloco": (
        "streaming-diloco, 4 bits",
        {
            "rule.kind": "streaming-diloco",
            "rule.collective": "all-to-all",
            "rule.fragments": FRAGMENTS,
            "topology.file": ALL_PAIRS,
            "compressor.kind": "min-max",
            "compressor.bits": 4,
        },
    ),
    "diloco": ("diloco, all-reduce", {"rule.kind": "diloco"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--rounds", type=int, default=24)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':<26}{'test loss':>10}{'kB a round':>12}{'virtual':>10}{'took':>8}")
    for way in arguments.ways:
        begun, (name, rule) = time.monotonic(), WAYS[way]
        if rule is None:
            loss, sent, virtual = (
                train_alone(STEPS * arguments.rounds, way == "pooled"),
                "-",
                "-",
            )
        else:
            end = train_together(rule, arguments.rounds)
            last = end.curve[-1]
            loss = last.measures["loss"]
            sent = f"{last.bytes_wire / arguments.rounds / 4e3:.0f}"  # of 50 steps
            virtual = f"{last.time_s:.0f} s"
        took = time.monotonic() - begun
        print(f"{name:<26}{loss:>10.3f}{sent:>12}{virtual:>10}{took:>6.0f} s", flush=True)


if __name__ == "__main__":
    main()
