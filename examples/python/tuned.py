"""Compares rules between four regions on the models of text.py and cifar.py, each at its best.

    python tuned.py cifar --data FOLDER --out ../../docs             # split by label
    python tuned.py cifar-dirichlet --data FOLDER --out ../../docs   # after cifar: its settings
    python tuned.py text --out ../../docs

Each rule gets the same budget: eight settings on the first seed, then the best one on all seeds.
The page is OUT/results/tuned-TASK.md, its picture OUT/img/results/tuned-TASK.svg (needs
matplotlib). Each finished run is kept in OUT/results/tuned-TASK.jsonl, so an interrupted study
resumes. What is expected was written down before the first run. A task takes about an hour and a
half on a core. Their pages are in docs/results.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from study import Point, draw, spread
from text import ALL_PAIRS

import gradvine

SEEDS = list(range(1, 9))
#: The quantile of Student's t with 7 degrees of freedom for intervals of 95 %.
T = 2.365
#: Numbers of local steps between two rounds, and those that are tried first. All divide the steps
#: of every task, and all are multiples of FRAGMENTS.
LADDER = [4, 8, 12, 20, 40, 60, 100, 300]
FIRST = [8, 20, 60, 300]
FRAGMENTS = 4
EVALUATIONS = 25


@dataclass(frozen=True)
class Setting:
    """What is tuned."""

    local_steps: int
    #: Times the step size of the task.
    rate: float = 1.0
    #: Constants of the rule, instead of its defaults.
    constants: dict[str, Any] = field(default_factory=dict)

    def words(self) -> str:
        constants = "".join(
            f", {key.removeprefix('rule.')} {value}" for key, value in self.constants.items()
        )
        return f"H {self.local_steps}, step x {self.rate:g}{constants}"


@dataclass(frozen=True)
class Row:
    """A rule, and other constants of it to try."""

    name: str
    rule: dict[str, Any]
    constants: list[dict[str, Any]] = field(default_factory=list)


FOUR_BITS = {"compressor.kind": "min-max", "compressor.bits": 4}
MOMENTA = [{"rule.outer_momentum": 0.3}, {"rule.outer_momentum": 0.7}]
ROWS = {
    "all-reduce": Row(
        "ring all-reduce",
        {"rule.kind": "diloco", "rule.outer_step": 1.0, "rule.outer_momentum": 0.0},
        # With them it is DiLoCo.
        [
            {"rule.outer_step": 0.7, "rule.outer_momentum": 0.5},
            {"rule.outer_step": 0.7, "rule.outer_momentum": 0.9},
        ],
    ),
    "d-psgd": Row("D-PSGD, ring", {"rule.kind": "d-psgd"}),
    "choco": Row("CHOCO, 4 bits, ring", {"rule.kind": "choco", **FOUR_BITS}),
    "gasloc-ring": Row(
        "GASLoC, 4 bits, ring", {"rule.kind": "compressed-gasloc", **FOUR_BITS}, MOMENTA
    ),
    "gasloc": Row(
        "GASLoC, 4 bits, all pairs",
        {"rule.kind": "compressed-gasloc", "topology.file": ALL_PAIRS, **FOUR_BITS},
        MOMENTA,
    ),
    "streaming": Row(
        "streaming DiLoCo, 4 bits, all pairs",
        {
            "rule.kind": "streaming-diloco",
            "rule.collective": "all-to-all",
            "rule.fragments": FRAGMENTS,
            "topology.file": ALL_PAIRS,
            **FOUR_BITS,
        },
        [{"rule.outer_momentum": 0.5}, {"rule.outer_momentum": 0.7}],
    ),
}
#: Training in one place, at the step size of the task.
PLACES = {
    "pooled": "pooled: all rows in one place",
    "alone": "alone: each region by itself",
}
#: Of all comparisons.
BASE = "all-reduce"


Run = list[Point]


@dataclass(frozen=True)
class Task:
    """What is trained."""

    name: str
    title: str
    here: str
    score: str
    together: Callable[[dict[str, Any], Setting, int], gradvine.Simulation]
    #: The score of training in one place (with all rows or not) by seed; None: it is left out.
    in_one_place: Callable[[bool, int], float] | None
    measure: str
    #: Local steps of a region in a run.
    steps: int
    #: The settings are chosen for the first.
    targets: list[float]
    #: What a reader may conclude, and may not.
    conclusion: str = ""
    #: Where settings come from that are not tuned here.
    tuned_by: str | None = None

    def run(self, way: str, setting: Setting, seed: int) -> Run:
        if way in PLACES and self.in_one_place:
            return [Point(0.0, 0.0, 0.0, self.in_one_place(way == "pooled", seed))]
        end = self.together({**ROWS[way].rule, **setting.constants}, setting, seed)
        last, nodes = end.curve[-1], 4
        rounds = self.steps / setting.local_steps
        return [
            Point(
                one.rounds / last.rounds * rounds,
                one.time_s,
                one.bytes_wire / nodes / 1e6,
                1.0 - one.measures[self.measure]
                if self.measure == "accuracy"
                else one.measures[self.measure],
            )
            for one in end.curve
        ]


LINKS = (
    "Links between London, Ohio, California and Tokyo are simulated; gradients are those of torch."
)


def text_task() -> Task:
    import text

    # Small, so that a run has tens of rounds of 300 steps in a minute.
    size = text.Size(width=32, blocks=1, length=32, batch=4, step_ms=1.0)
    steps, rate = 10_800, 2 * text.RATE

    def together(rule: dict[str, Any], setting: Setting, seed: int) -> gradvine.Simulation:
        return text.train_together(
            rule,
            steps // setting.local_steps,
            seed,
            EVALUATIONS,
            setting.local_steps,
            rate * setting.rate,
            size,
        )

    return Task(
        name="tuned-text",
        title="A transformer on text that differs between four regions",
        here=(
            "A transformer of one block with 22,112 parameters predicts the next of 32 characters "
            "of source text; each of four regions has another package of Python's library. AdamW "
            f"inside, {steps} steps of {size.step_ms:.0f} ms with {size.batch} windows at each "
            f"region. {LINKS} The score is the loss of the mean model on text of all four packages "
            "that nobody trains on. The model is that of `examples/python/text.py`, smaller."
        ),
        score="test loss",
        together=together,
        in_one_place=None,
        measure="loss",
        steps=steps,
        targets=[1.65, 2.0, 1.8, 1.7],
        conclusion=ON_TEXT,
    )


ON_TEXT = (
    "The texts of the regions differ so little, and a step takes so little time, that all rules "
    "but one want the longest of the settings, 300 local steps. Nearly all then need the same "
    "number of rounds, and the length of a round decides: with 4 bits and one wait for each "
    "neighbour it is half that of a ring all-reduce. All pairs bring nothing over the ring here, "
    "because a model of 22,000 numbers waits for latency and not for the line. Whole models around "
    "the ring take seven tenths of the time; they do not always reach the first target. CHOCO "
    "mixes less in a round, so 300 local steps take it too far apart: it needs a hundred, and "
    "gains at most a tenth. The delay of streaming DiLoCo costs a tenth more than it saves. The "
    "step size that is called x 1 was set after four runs of ring all-reduce, and the first target "
    "after the trials, so that it needs thirty rounds. The model is small, so that a run of thirty "
    "rounds takes a minute; a larger one has longer rounds, and fewer bits are then worth more."
)
BY_LABEL = (
    "Where each region has other classes and a gradient takes 20 ms, all rules but one want 4 or 8 "
    "local steps: more of them cost accuracy that no number of rounds in this budget brings back. "
    "So rounds are many, and their length decides. Compressed differences between all pairs, with "
    "an outer momentum, reach every target first and lose nothing at the end. Compressed gossip "
    "around the ring is fast to easy targets; it ends two to four points behind an all-reduce. "
    "Averages that land late pay at no target here: what a round saves, the delay costs in rounds. "
    "The first target was set after the first five runs, because 0.55 needs fewer than thirty "
    "rounds of ring all-reduce. The step sizes tried are three, on one seed; and the score is that "
    "of the mean model, which a region does not have before the end."
)
BY_DIRICHLET = (
    "Where each region has all classes in other shares, nothing is lost by gossip: all rules end "
    "within two points of each other. All others are faster than a ring all-reduce to every target "
    "that all their runs reach. Four rules with 4 bits take about two fifths of its time, "
    "around the ring as between all pairs, with and without a delay. Only the strictest target "
    "tells them apart: there the delay of streaming DiLoCo costs rounds, and GASLoC around the "
    "ring, which makes 30 rounds in all, does not always get there. The settings are those of the "
    "other division, tuned for no rule here; the all-reduce, which was tuned to half the step "
    "size there, may be better with another. The first target was 0.45 until the runs "
    "showed that one all-reduce of eight does not reach it."
)


def cifar_task(folder: Path, split: str) -> Task:
    import cifar

    images, test = cifar.load(folder)
    steps = 600

    def together(rule: dict[str, Any], setting: Setting, seed: int) -> gradvine.Simulation:
        parts = cifar.divide(images, split, 0.3, seed)
        rounds, rate = steps // setting.local_steps, cifar.RATE * setting.rate
        task = cifar.Task(parts, test, rounds, seed, rate, setting.local_steps)
        return cifar.train_together(task, rule, EVALUATIONS)

    def in_one_place(pooled: bool, seed: int) -> float:
        parts = cifar.divide(images, split, 0.3, seed)
        task = cifar.Task(parts, test, steps // cifar.STEPS, seed)
        return 1.0 - cifar.train_alone(task, pooled)

    by_label = split == "label"
    division = (
        "sorted by their class and cut in four, so that a region has two or three classes"
        if by_label
        else "of which each region's share of each class is drawn from Dirichlet(0.3)"
    )
    return Task(
        name="tuned-cifar" if by_label else "tuned-cifar-dirichlet",
        title="A convolutional network on pictures "
        + ("split by label between four regions" if by_label else "divided by Dirichlet(0.3)"),
        here=(
            f"A network of 68,362 parameters on {len(images)} pictures of CIFAR-10, {division}. "
            "SGD with momentum inside, with a step size that falls along half a cosine, "
            f"{steps} steps of {cifar.STEP_MS:.0f} ms at each region. {LINKS} The score is the "
            f"share of wrong answers of the mean model on {len(test)} other pictures. The network "
            "is that of `examples/python/cifar.py`."
        ),
        score="test error",
        together=together,
        in_one_place=in_one_place,
        measure="accuracy",
        steps=steps,
        targets=[0.48, 0.6, 0.55, 0.5] if by_label else [0.46, 0.6, 0.55, 0.5],
        conclusion=BY_LABEL if by_label else BY_DIRICHLET,
        tuned_by=None if by_label else "tuned-cifar",
    )


class Runs:
    """Runs that a file keeps, and those that it lacks."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task = task
        self.path = folder / f"{task.name}.jsonl"
        self.kept: dict[tuple[str, str, int], Run] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                one = json.loads(line)
                points = [Point(**point) for point in one["points"]]
                self.kept[one["way"], one["setting"], one["seed"]] = points

    def get(self, way: str, setting: Setting, seed: int) -> Run:
        key = (way, setting.words(), seed)
        if key not in self.kept:
            begun = time.monotonic()
            self.kept[key] = self.task.run(way, setting, seed)
            points = [
                {name: round(value, 5) for name, value in vars(point).items()}
                for point in self.kept[key]
            ]
            kept = {"way": way, "setting": key[1], "seed": seed, "points": points}
            with self.path.open("a") as file:
                file.write(json.dumps(kept) + "\n")
            score, took = self.kept[key][-1].score, time.monotonic() - begun
            print(
                f"{way:<12}{key[1]:<44} seed {seed}{score:>8.4f}{took:>6.0f} s",
                flush=True,
            )
        return self.kept[key]


def settings(row: Row, best: Callable[[], Setting]) -> Iterator[Setting]:
    """Eight settings: four H, two step sizes, and two constants or two more H."""
    yield from (Setting(steps) for steps in FIRST)
    now = best()
    yield from (replace(now, rate=rate) for rate in (0.5, 2.0))
    now = best()
    if row.constants:
        yield from (replace(now, constants=constants) for constants in row.constants)
        return
    place = LADDER.index(now.local_steps)
    left = [steps for steps in LADDER if steps not in FIRST]
    left.sort(key=lambda steps: abs(LADDER.index(steps) - place))
    yield from (replace(now, local_steps=steps) for steps in sorted(left[:2]))


def tune(way: str, target: float, runs: Runs) -> tuple[Setting, list[Setting]]:
    """The setting that reaches the target first, on the first seed, and all that were tried."""
    tried: list[tuple[float, float, Setting]] = []

    def best() -> Setting:
        return min(tried, key=lambda one: one[:2])[2]

    for setting in settings(ROWS[way], best):
        run = runs.get(way, setting, SEEDS[0])
        there = reached(run, target)
        tried.append((there.time_s if there else math.inf, run[-1].score, setting))
    return best(), [setting for _, _, setting in tried]


def reached(run: Run, target: float) -> Point | None:
    """The first evaluation at or below the target."""
    return next((point for point in run if point.score <= target), None)


Best = dict[str, list[Run]]


def ratio(left: list[float], right: list[float]) -> tuple[float, float, float]:
    """The geometric mean of left / right by seed, and its interval of 95 %."""
    logs = [math.log(a / b) for a, b in zip(left, right, strict=True)]
    mean = statistics.mean(logs)
    half = T * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def times(runs: list[Run], target: float) -> list[float] | None:
    """The virtual times to a target, if all seeds reach it."""
    there = [reached(run, target) for run in runs]
    return None if None in there else [one.time_s for one in there if one is not None]


def time_to(runs: list[Run], target: float) -> str:
    found = [reached(run, target) for run in runs]
    there = [one for one in found if one is not None]
    if len(there) < len(found):
        return f"not in {len(found) - len(there)} of {len(found)}"
    rounds = statistics.mean(one.rounds for one in there)
    return f"{spread([one.time_s for one in there], 1)} s; {rounds:.0f} rounds"


def judge(
    words: str, left: str, right: str, factor: float, best: Best, targets: list[float]
) -> str:
    """At each target, from the strictest: agrees or not if the interval of 95 % says so."""
    said = []
    for target in sorted(targets):
        above, below = times(best[left], target), times(best[right], target)
        if above is None or below is None:
            said.append(f"at {target} **no evidence** (not reached in all runs)")
            continue
        mean, low, high = ratio(above, below)
        verdict = (
            "agrees" if high < factor else "**disagrees**" if low > factor else "**undecided**"
        )
        said.append(f"at {target} {verdict} ({mean:.2f}, {low:.2f} to {high:.2f})")
    return f"- {words}: ratio of times below {factor:.2f} expected — {'; '.join(said)}"


#: Words, the two rows, and the largest ratio of their times to the target: what was expected.
EXPECTED = [
    ("Gossip of whole models around the ring is as fast", "d-psgd", BASE, 1.2),
    ("CHOCO with 4 bits is faster", "choco", BASE, 1.0),
    ("GASLoC with 4 bits around the ring is faster", "gasloc-ring", BASE, 0.75),
    ("GASLoC with 4 bits between all pairs takes half the time", "gasloc", BASE, 0.5),
    ("Streaming DiLoCo takes half the time", "streaming", BASE, 0.5),
    (
        "Its delay pays: it is faster than GASLoC with as many bits",
        "streaming",
        "gasloc",
        1.0,
    ),
]


def all_settings(task: Task, tried: dict[str, list[Setting]], runs: Runs) -> list[str]:
    """The trials on the first seed, as a section."""
    lines = [
        "## All settings",
        "",
        f"On seed {SEEDS[0]}; the file of runs beside this page has the curves.",
        "",
        f"| | setting | {task.score} at the end | virtual time | to {task.targets[0]} |",
        "|---|---|---:|---:|---:|",
    ]
    for way, settings_of_way in tried.items():
        for setting in settings_of_way:
            run = runs.get(way, setting, SEEDS[0])
            there = reached(run, task.targets[0])
            to = f"{there.time_s:.1f} s; {there.rounds:.0f} rounds" if there else "not reached"
            end = f"{run[-1].score:.3f} | {run[-1].time_s:.1f} s"
            lines.append(f"| {ROWS[way].name} | {setting.words()} | {end} | {to} |")
    return [*lines, ""]


def wrap(text: str, indent: str = "") -> str:
    """A paragraph of 100 columns; ``indent`` is that of its further lines."""
    return textwrap.fill(
        text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def write_page(task: Task, chosen: dict[str, Setting], best: Best, trials: list[str]) -> str:
    tuned = (
        f"Each rule has the best of eight settings on seed {SEEDS[0]}: H, the number of local "
        f"steps between two rounds, of {min(LADDER)} to {max(LADDER)}, the step size, and "
        "constants of the rule or further H. The best reaches the first target of the second "
        "table soonest."
        if task.tuned_by is None
        else f"The settings are those of [the other division]({task.tuned_by}.md)."
    )
    lines = [
        f"# {task.title}",
        "",
        wrap(
            f"{task.here} {tuned} Torch {torch.__version__.split('+')[0]}, seeds "
            f"{SEEDS[0]} to {SEEDS[-1]}; ± is one standard deviation."
        ),
        "",
        f"| | setting | {task.score} at the end | MB sent by a node | virtual time |",
        "|---|---|---:|---:|---:|",
    ]
    for way, runs in best.items():
        last = [run[-1] for run in runs]
        score = spread([one.score for one in last], 3)
        if way in PLACES:
            lines.append(f"| {PLACES[way]} | step x 1 | {score} | | |")
            continue
        sent = statistics.mean(one.sent for one in last)
        virtual = statistics.mean(one.time_s for one in last)
        name, words = ROWS[way].name, chosen[way].words()
        lines.append(f"| {name} | {words} | {score} | {sent:.2f} | {virtual:.0f} s |")
    lines += [
        "",
        wrap(
            f"Virtual time and rounds to a {task.score}, at the first evaluation that reaches it "
            f"(at most {EVALUATIONS} evaluations, none inside a round):"
        ),
        "",
        "".join(f"| {cell} " for cell in ["", *task.targets]) + "|",
        "|---|" + "---:|" * len(task.targets),
    ]
    for way in ROWS:
        cells = [time_to(best[way], one) for one in task.targets]
        lines.append("".join(f"| {cell} " for cell in [ROWS[way].name, *cells]) + "|")
    lines += [
        "",
        f"![The {task.score} by rounds, bytes and time](../img/results/{task.name}.svg)",
        "",
        *(
            ["## What a reader may conclude", "", wrap(task.conclusion), ""]
            if task.conclusion
            else []
        ),
        *trials,
        "## What was expected",
        "",
        *(wrap(judge(*one, best, task.targets), "  ") for one in EXPECTED),
        "",
    ]
    return "\n".join(lines)


def draw_task(task: Task, best: Best, path: Path) -> None:
    curves = {
        PLACES[way] if way in PLACES else ROWS[way].name: (
            [run[-1:] for run in runs] if way in PLACES else runs
        )
        for way, runs in best.items()
    }
    draw(task.score, curves, path, alone=PLACES["alone"], target=task.targets[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("task", choices=["text", "cifar", "cifar-dirichlet"])
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of cifar.py")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.task != "text" and arguments.data is None:
        parser.error(f"{arguments.task} needs --data FOLDER")
    torch.set_num_threads(1)
    split = "label" if arguments.task == "cifar" else "dirichlet"
    task = text_task() if arguments.task == "text" else cifar_task(arguments.data, split)
    results = arguments.out / "results"
    results.mkdir(parents=True, exist_ok=True)
    runs = Runs(task, results)
    tuned = task if task.tuned_by is None else cifar_task(arguments.data, "label")
    trials = runs if task.tuned_by is None else Runs(tuned, results)
    found = {way: tune(way, tuned.targets[0], trials) for way in ROWS}
    chosen = {way: setting for way, (setting, _) in found.items()}
    if task.in_one_place:
        chosen |= {way: Setting(1) for way in PLACES}
    for seed in SEEDS:
        for way in chosen:
            runs.get(way, chosen[way], seed)
    best = {way: [runs.get(way, chosen[way], seed) for seed in SEEDS] for way in chosen}
    draw_task(task, best, arguments.out / "img" / "results" / f"{task.name}.svg")
    tried = {way: settings for way, (_, settings) in found.items()}
    section = all_settings(task, tried, runs) if tuned is task else []
    (results / f"{task.name}.md").write_text(write_page(task, chosen, best, section))


if __name__ == "__main__":
    main()
