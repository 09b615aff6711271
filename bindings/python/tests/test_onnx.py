"""Models that ``gradvine export`` writes, opened by onnxruntime."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def command(folder: Path, *arguments: str) -> str:
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
    return done.stdout


def rows() -> list[list[float]]:
    """Two features of very different size."""
    return [[1000.0 + 37 * i % 91, (53 * i % 29) / 1000.0] for i in range(300)]


def write(folder: Path, target: str, values: list[str]) -> None:
    with (folder / "rows.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["height", "dose", target])
        out.writerows([*row, value] for row, value in zip(rows(), values, strict=True))


def exported(folder: Path, *settings: str):
    """Trains, exports and opens a model; returns the session and the lines of ``predict``."""
    sets = [word for key in ("data.source=rows.csv", *settings) for word in ("--set", key)]
    run = ["simulate", "--topology", "path:3", "--rounds", "60", "--out", "run", "--quiet"]
    command(folder, *run, *sets)
    command(folder, "export", "run", "--format", "onnx", "--out", "model.onnx")
    lines = list(csv.reader(command(folder, "predict", "run", "rows.csv").splitlines()))[1:]
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    return session, lines


@pytest.mark.parametrize(
    "model",
    [["model.kind=softmax"], ["model.kind=mlp", "model.hidden=[8,4]"]],
    ids=["one", "three"],
)
def test_classes_are_those_of_the_command(tmp_path: Path, model: list[str]) -> None:
    names = ["high", "low", "zero"]
    wave = [math.sin(height / 13.0) + 20.0 * dose for height, dose in rows()]
    write(tmp_path, "state", [names[0 if w > 0.7 else 1 if w > 0 else 2] for w in wave])
    session, lines = exported(tmp_path, *model)
    features = np.array(rows(), np.float32)
    label, probabilities = session.run(["label", "probabilities"], {"features": features})
    assert label.shape == (300,) and label.dtype == np.int64
    expected = np.array([[float(p) for p in line[2:]] for line in lines])
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-5)
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["gradvine.classes"]) == names
    assert json.loads(metadata["gradvine.columns"]) == ["height", "dose"]
    found = [names[one] for one in label]
    assert len(set(found)) > 1, "a model that has learned something"
    same = [one == line[1] for one, line in zip(found, lines, strict=True)]
    # Only classes of equal probability may change places.
    ordered = np.sort(expected, axis=1)
    assert all(np.array(same) | (ordered[:, -1] - ordered[:, -2] < 1e-5))


@pytest.mark.parametrize(
    "model",
    [["model.kind=least-squares"], ["model.kind=mlp", "model.task=regression"]],
    ids=["linear", "network"],
)
def test_numbers_are_those_of_the_command(tmp_path: Path, model: list[str]) -> None:
    write(tmp_path, "price", [repr(height / 500.0 - 30.0 * dose) for height, dose in rows()])
    session, lines = exported(tmp_path, *model, "data.split=iid", "optimizer.step=0.02")
    (values,) = session.run(["values"], {"features": np.array(rows(), np.float32)})
    expected = np.array([[float(value) for value in line[1:]] for line in lines])
    assert values.shape == expected.shape == (300, 1)
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-5)
    # Of another row there is another value.
    assert np.ptp(values) > 0.1


def test_missing_cells_become_what_the_command_makes_of_them(tmp_path: Path) -> None:
    cells = [[*row] for row in rows()]
    for line in range(0, 300, 7):
        cells[line][0] = math.nan
    for line in range(0, 300, 11):
        cells[line][1] = math.nan
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["height", "dose", "state"])
        for line, (height, dose) in enumerate(cells):
            state = "high" if rows()[line][0] > 1040 else "low"
            shown = ["" if math.isnan(cell) else cell for cell in (height, dose)]
            out.writerow([*shown, state])
    columns = (
        '{name="height",kind="number",missing="mean"},{name="dose",kind="number",missing="median"}'
    )
    session, lines = exported(tmp_path, "data.target=state", f"data.schema=[{columns}]")
    label, probabilities = session.run(None, {"features": np.array(cells, np.float32)})
    expected = np.array([[float(p) for p in line[2:]] for line in lines])
    np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-5)
    assert [["high", "low"][one] for one in label] == [line[1] for line in lines]
