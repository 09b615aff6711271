#!/usr/bin/env python3
"""Runs two programs in turn over the same commands, and compares what they take.

    benches/pairs.py OLD NEW                      all cases below
    benches/pairs.py OLD NEW --runs 9 plan table  some of them
    benches/pairs.py OLD NEW -- rules             these arguments

OLD and NEW are two builds of `gradvine`, or of one bench. Of each command it prints the least and
the median of CPU seconds (user and system), the least wall seconds, and the peak memory. The last
columns are NEW divided by OLD. Where other programs run too, compare the least CPU seconds: the
two programs take turns, so that both have the same neighbours.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"
ROWS, FEATURES = 200_000, 30


class Taken(NamedTuple):
    """CPU seconds, wall seconds and peak MB of one run of a command."""

    cpu: float
    wall: float
    peak: float


def large(rule: str, nodes: int) -> list[str]:
    """The arguments of 24 rounds of 4-bit differences of a large model."""
    sets = [
        f"rule.kind={rule}",
        "compressor.kind=min-max",
        "compressor.bits=4",
        "model.kind=mlp",
        "model.hidden=[1500,1500]",
        "optimizer.batch=1",
        "optimizer.step=1e-4",
        "run.evaluate_every=1000",
    ]
    return ["simulate", "--no-baseline", "--topology", f"ring:{nodes}", "--rounds", "24", *given(sets)]


def given(sets: list[str]) -> list[str]:
    return [word for one in sets for word in ("--set", one)]


#: Arguments by the name of the case. `OUT` is a folder that does not exist, `TABLE` a CSV file.
CASES = {
    "choco": large("choco", 8),
    "choco-two": large("choco", 2),
    "dcd": large("dcd", 8),
    "table": [
        *("simulate", "--no-baseline", "--rounds", "2", "--out", "OUT"),
        *given(["data.source=TABLE", "model.kind=softmax"]),
    ],
    "plan": ["plan"],
    "processes": [
        *("train", "--processes", "--no-baseline", "--topology", "ring:4", "--rounds", "400"),
        *("--out", "OUT"),
    ],
    "nodes": [
        *("simulate", str(EXPERIMENTS / "ten-thousand.toml"), "--no-baseline", "--out", "OUT"),
    ],
}


def write_table(path: Path) -> None:
    """Numbers with four decimals, and one of three classes in the last column."""
    dice = random.Random(1)
    with path.open("w") as file:
        file.write(",".join([*(f"f{i}" for i in range(FEATURES)), "class"]) + "\n")
        for _ in range(ROWS):
            cells = [f"{dice.random():.4f}" for _ in range(FEATURES)]
            file.write(",".join([*cells, "abc"[dice.randrange(3)]]) + "\n")


def run(program: str, arguments: list[str], folder: Path) -> Taken:
    """Runs the command in the folder to its end; descendants that have ended count too."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [program, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            errors.seek(0)
            sys.stderr.write(errors.read().decode(errors="replace"))
            sys.exit(f"{program} {' '.join(arguments)}: exit code {child.returncode}")
    wall = time.perf_counter() - began
    return Taken(usage.ru_utime + usage.ru_stime, wall, 1.024e-3 * usage.ru_maxrss)


def compare(programs: list[str], arguments: list[str], runs: int, folder: Path) -> list[str]:
    """The cells of one row: pairs of figures and their ratios."""
    taken: list[list[Taken]] = [[], []]
    for number in range(2 * runs):
        # The order changes from pair to pair.
        which = (number + number // 2) % 2
        names = {"OUT": str(folder / f"out-{time.monotonic_ns()}"), "TABLE": str(folder / "t.csv")}
        words = list(arguments)
        for name, value in names.items():
            words = [word.replace(name, value) for word in words]
        taken[which].append(run(programs[which], words, folder))

    def pair(form: str, of: Callable[[Iterable[float]], float], column: int) -> list[str]:
        old, new = (of(one[column] for one in each) for each in taken)
        return [f"{old:{form}}", f"{new:{form}}", f"{new / old:.2f}"]

    return [
        *pair(".2f", min, 0),
        *pair(".2f", statistics.median, 0),
        *pair(".2f", min, 1),
        *pair(".0f", min, 2),
    ]


HEADS = ["case", *("old", "new", "ratio") * 4]


def show(cells: list[str]) -> None:
    print(f"{cells[0]:<10}", *(f"{cell:>7}" for cell in cells[1:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", help="a program")
    parser.add_argument("new", help="the program to compare with it")
    parser.add_argument("--runs", type=int, default=5, help="runs of each program (5)")
    parser.add_argument("cases", nargs="*", metavar="case", help=", ".join(CASES))
    ours, behind = sys.argv[1:], None
    if "--" in ours:
        at = ours.index("--")
        ours, behind = ours[:at], ours[at + 1 :]
    words = parser.parse_intermixed_args(ours)
    wrong = [case for case in words.cases if case not in CASES]
    if wrong:
        parser.error(f"{', '.join(wrong)}: expected {', '.join(CASES)}")
    cases = {" ".join(behind): behind} if behind is not None else CASES
    if words.cases:
        cases = {name: CASES[name] for name in words.cases}
    programs = [str(Path(program).resolve()) for program in (words.old, words.new)]
    sizes = [Path(program).stat().st_size / 1e6 for program in programs]
    print("program, MB: old {:.1f}, new {:.1f}, ratio {:.2f}".format(*sizes, sizes[1] / sizes[0]))
    parts = ["CPU s, least", "CPU s, median", "wall s, least", "peak MB"]
    print(f"{'':<10}", *(f"{part:>23}" for part in parts))
    show(HEADS)
    with tempfile.TemporaryDirectory() as folder:
        if "table" in cases:
            write_table(Path(folder) / "t.csv")
        for name, arguments in cases.items():
            show([name, *compare(programs, arguments, words.runs, Path(folder))])


if __name__ == "__main__":
    main()
