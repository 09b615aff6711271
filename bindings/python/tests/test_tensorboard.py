"""Event files that ``gradvine export`` writes, read by TensorBoard."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

event_accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator",
    reason="tensorboard is not installed",
)
event_file_loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")

#: The tags of event files and the keys of ``metrics.jsonl``.
TAGS = {
    "train/loss": "train_loss",
    "test/loss": "test_loss",
    "test/accuracy": "test_accuracy",
    "consensus": "consensus",
    "bytes/payload": "bytes_payload",
    "bytes/wire": "bytes_wire",
    "bytes/dense": "bytes_dense",
    "time/computing_s": "computing_s",
}


def command(folder: Path, *arguments: str) -> None:
    """Runs the command line of the package."""
    done = subprocess.run(
        [sys.executable, "-m", "gradvine", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr


def expected(lines: list[dict], start: float) -> dict[str, list[tuple[int, float, float]]]:
    """Step, time and value of each scalar of a node, by tag."""
    scalars: dict[str, list[tuple[int, float, float]]] = {}
    for line in lines:
        known = {tag: line[key] for tag, key in TAGS.items() if key in line}
        known |= {f"measures/{name}": value for name, value in line.get("measures", {}).items()}
        for tag, value in known.items():
            event = (line["round"], start + line["time_s"], float(np.float32(value)))
            scalars.setdefault(tag, []).append(event)
    return scalars


@pytest.mark.parametrize(
    ("name", "start"),
    [("run", 0.0), ("20260102-030405-choco-path-3", 1767323045.0)],
    ids=["named", "dated"],
)
def test_every_value_is_read_back(tmp_path: Path, name: str, start: float) -> None:
    sets = ["data.source=breast-cancer", "model.kind=softmax", "run.evaluate_every=5"]
    sets += ["network.compute=fixed", "network.compute_ms=3", "network.latency_ms=20"]
    words = [word for key in sets for word in ("--set", key)]
    run = ["simulate", "--topology", "path:3", "--rounds", "40", "--quiet", "--out", name]
    command(tmp_path, *run, *words)
    file = tmp_path / name / "metrics.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    # As if a program had measured something at one node.
    for line in lines:
        if line["node"] == 1:
            line["measures"] = {"perplexity": line["train_loss"] * 1e20}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command(tmp_path, "export", name, "--to", "tensorboard", "--out", "events")
    assert sorted(path.name for path in (tmp_path / "events").iterdir()) == ["0", "1", "2"]
    for node in range(3):
        folder = tmp_path / "events" / str(node)
        scalars = expected([line for line in lines if line["node"] == node], start)
        assert len(scalars) == (9 if node == 1 else 8)
        read = event_accumulator.EventAccumulator(str(folder))
        read.Reload()
        assert sorted(read.Tags()["scalars"]) == sorted(scalars)
        for tag, values in scalars.items():
            found = [(one.step, one.wall_time, one.value) for one in read.Scalars(tag)]
            assert found == values
        # What TensorBoard's server makes of the same file.
        [path] = folder.iterdir()
        events = list(event_file_loader.EventFileLoader(str(path)).Load())
        assert events[0].file_version == "brain.Event:2" and len(events) == 1 + 8
        for event in events[1:]:
            for value in event.summary.value:
                assert value.metadata.plugin_data.plugin_name == "scalars"
                scalar = (event.step, event.wall_time, value.tensor.float_val[0])
                assert scalar in scalars[value.tag]


def test_a_damaged_file_is_noticed(tmp_path: Path) -> None:
    """The reader checks what this program writes: a wrong bit is an error."""
    sets = ["--set", "data.source=breast-cancer", "--set", "model.kind=softmax"]
    run = ["simulate", "--topology", "path:2", "--rounds", "2", "--quiet", "--out", "run"]
    command(tmp_path, *run, *sets)
    command(tmp_path, "export", "run", "--to", "tensorboard")
    [path] = (tmp_path / "run" / "tensorboard" / "1").iterdir()
    assert len(list(event_file_loader.EventFileLoader(str(path)).Load())) == 2
    bytes_ = bytearray(path.read_bytes())
    bytes_[-10] ^= 1
    path.write_bytes(bytes_)
    assert len(list(event_file_loader.EventFileLoader(str(path)).Load())) == 1
