"""The example notebook runs from its first cell to its last, without Jupyter."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"
NOTEBOOK = EXAMPLES / "notebook.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    """The notebook's cells of a kind, "code" or "markdown"."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def run(sources: list[str]) -> list[Any]:
    """Runs cells one after another in one namespace. Returns what a notebook would show of each
    one's last expression: its HTML or picture, or else the value."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for number, source in enumerate(sources, 1):
        try:
            shown.append(show(evaluate(source, f"<code cell {number}>", names)))
        except Exception as error:
            error.add_note(f"in code cell {number}:\n{source}")
            raise
    return shown


def evaluate(source: str, place: str, names: dict[str, Any]) -> Any:
    """Runs a cell; returns the value of its last expression, or None if it ends otherwise."""
    tree = ast.parse(source, place)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, place, "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), place, "eval"), names)


def show(value: Any) -> Any:
    for form in ("_repr_html_", "_repr_svg_"):
        if hasattr(value, form):
            return getattr(value, form)()
    return value


def test_every_cell_runs_and_shows_its_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # As Jupyter does: paths begin from the notebook's folder.
    monkeypatch.chdir(EXAMPLES)
    # What the notebook writes goes with the test.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shown = [str(one) for one in run(["".join(cell["source"]) for cell in cells("code")])]
    for part in ("<svg", "<table>", "<iframe"):
        assert any(one.startswith(part) for one in shown), f"no cell shows {part}"
    printed = capfd.readouterr().out
    assert "gradient-tracking" in printed and "accuracy" in printed


def test_a_cell_that_raises_is_reported_with_its_number_and_source() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run(["x = 1", "x / 0"])
    assert caught.value.__notes__ == ["in code cell 2:\nx / 0"]
    # Cells share their names, and the last expression counts.
    assert run(["x = 1", "x += 1\nx", "y = x"]) == [None, 2, None]


def test_the_notebook_is_kept_without_outputs() -> None:
    for cell in cells("code"):
        assert cell["outputs"] == [] and cell["execution_count"] is None, cell["id"]
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4 and notebook["metadata"]["kernelspec"]["name"] == "python3"
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)
