"""Nodes and their processes: Ctrl-C, forks, ends without a word, the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import gradvine
from conftest import Bowl, everywhere, model, until

#: What every program of these tests begins with.
BEGIN = """
import os, signal, sys, time
import numpy as np
import gradvine

# A shell that starts the tests in the background has them ignore Ctrl-C, nohup has them ignore a
# terminal that closes, and their children too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

def model():
    return {"weight": np.zeros((2, 4), np.float32), "bias": np.full(2, 0.5, np.float32)}

node = gradvine.join(sys.argv[1], model(), rows=1)
print("linked", flush=True)
"""


def start(file: Path, program: str) -> subprocess.Popen[str]:
    """Starts a program that joins with this file."""
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + textwrap.dedent(program), str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_interrupts_a_wait_within_a_second(nodes):
    files = nodes("path:2")
    program = """
        try:
            node.round()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            # The round continues, and so does the run.
            while not node.done:
                node.update[:] = 0.0
                node.round()
            print(node.finish().rounds, flush=True)
    """

    def run(node: int, file: Path) -> None:
        if node == 0:
            process = start(file, program)
            assert process.stdout is not None
            assert process.stdout.readline() == "linked\n"
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            begun = time.monotonic()
            assert process.stdout.readline() == "interrupted\n"
            assert time.monotonic() - begun < 1.0
            waits.append(True)
            out, err = process.communicate(timeout=30)
            assert (process.returncode, out) == (0, "20\n"), err
        else:
            joined = gradvine.join(file, model(), rows=1)
            until("the other one was interrupted", lambda: waits)
            while not joined.done:
                joined.update[:] = 0.0
                joined.round()
            joined.finish()

    waits: list[bool] = []
    everywhere(files, run)


def listens(file: Path) -> bool:
    """Whether a node listens at the address of its file."""
    found = re.search(r'listen = \["/ip4/([0-9.]+)/tcp/([0-9]+)"', file.read_text())
    assert found, file.read_text()
    with socket.socket() as connection:
        return connection.connect_ex((found[1], int(found[2]))) == 0


def test_ctrl_c_interrupts_join(nodes):
    file, _ = nodes("path:2")
    process = start(file, "")
    until("the node listens", lambda: listens(file))
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, err = process.communicate(timeout=10)
    assert time.monotonic() - begun < 4.0
    assert "KeyboardInterrupt" in err


def test_a_program_that_ends_without_a_word_leaves_at_once(nodes):
    """The neighbour learns that the node left; it does not wait for a deadline."""

    def run(node: int, file: Path) -> None:
        if node == 0:
            process = start(file, "node.update[:] = 0.0; node.round()")
            _, err = process.communicate(timeout=30)
            assert process.returncode == 0, err
            return
        joined = gradvine.join(file, model(), rows=1)
        begun = time.monotonic()
        with pytest.raises(gradvine.RunError, match="0"):
            while not joined.done:
                joined.update[:] = 0.0
                joined.round()
        assert time.monotonic() - begun < 10.0

    everywhere(nodes("path:2"), run)


def test_a_program_ends_although_another_thread_is_in_a_round(nodes):
    program = """
        import threading
        threading.Thread(target=node.round, daemon=True).start()
        time.sleep(0.2)
        print("ends", flush=True)
    """

    def run(node: int, file: Path) -> None:
        if node == 0:
            process = start(file, program)
            assert process.stdout is not None
            assert process.stdout.readline() == "linked\n"
            assert process.stdout.readline() == "ends\n"
            begun = time.monotonic()
            process.communicate(timeout=30)
            assert process.returncode == 0
            assert time.monotonic() - begun < 8.0
            ended.set()
            return
        with gradvine.join(file, model(), rows=1):
            # Without an update of this node the round of the other one does not end.
            assert ended.wait(40)

    ended = threading.Event()
    everywhere(nodes("path:2"), run)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_forked_child_raises_and_does_not_keep_connections_open(nodes):
    program = """
        child = os.fork()
        if child == 0:
            try:
                node.round()
            except gradvine.StateError as error:
                print(error, flush=True)
            sys.stdout.close()
            time.sleep(20)
            os._exit(0)
        os.waitpid(child, os.WNOHANG)
        print(f"child {child};", flush=True)
        time.sleep(60)
    """

    def run(node: int, file: Path) -> None:
        if node == 0:
            process = start(file, program)
            assert process.stdout is not None
            # Parent and child write to one pipe, in any order.
            lines = [process.stdout.readline() for _ in range(3)]
            found = re.findall(r"child (\d+);", "".join(lines))
            assert len(found) == 1 and "forked" in "".join(lines), lines
            child = int(found[0])
            process.kill()
            process.wait()
            killed.append(time.monotonic())
            everything_seen.wait(20)
            os.kill(child, signal.SIGKILL)
            return
        joined = gradvine.join(file, model(), rows=1)
        until("the parent is killed", lambda: killed)
        while "0" not in joined.report.lost:
            assert time.monotonic() - killed[0] < 3.0, "the child holds the connection"
            time.sleep(0.02)
        everything_seen.set()
        joined.close()

    killed: list[float] = []
    everything_seen = threading.Event()
    everywhere(nodes("path:2"), run)


def test_nothing_is_left_running_after_close(nodes):
    def run(node: int, file: Path) -> None:
        bowl = Bowl(node)
        with gradvine.join(file, model(), rows=1) as joined:
            while not joined.done:
                bowl.step(joined)
            joined.finish()

    before = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 0
    for _ in range(3):
        everywhere(nodes("path:2"), run)
    if sys.platform == "linux":
        until("threads of nodes end", lambda: len(os.listdir("/proc/self/task")) <= before + 2)


def command(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs the command line of the package."""
    return subprocess.run(
        [sys.executable, "-m", "gradvine", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


def test_the_package_contains_the_command_line(tmp_path):
    assert command("--version").stdout == f"gradvine {gradvine.__version__}\n"
    rules = command("rules")
    assert rules.returncode == 0 and "choco" in rules.stdout
    wrong = command("train", "--set", "rule.kind=chocolate")
    assert wrong.returncode == 2 and "choco" in wrong.stderr


def test_the_command_line_starts_processes_of_its_own(tmp_path):
    keys = ["run.rounds=20", "topology.file=ring:3", "run.evaluate_every=10"]
    sets = [word for key in keys for word in ("--set", key)]
    run = command("train", "--processes", "--json", "--out", "run", *sets, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    simulated = command("simulate", "--json", "--out", "again", *sets, cwd=tmp_path)
    assert simulated.returncode == 0, simulated.stderr
    assert json.loads(run.stdout)["digest"] == json.loads(simulated.stdout)["digest"]


def test_what_needs_torch_says_so():
    program = "import sys; sys.modules['torch'] = None; import gradvine; gradvine.attach"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "ImportError: gradvine.attach needs torch: pip install torch" in run.stderr


def test_the_command_line_needs_no_numpy():
    """Nor does what imports no array."""
    without = "import sys; sys.modules['numpy'] = None; "
    version = f"{without}sys.argv[1:] = ['--version']; import gradvine.__main__ as m; m.main()"
    names = f"{without}import gradvine as g; print('join' in dir(g), g.local_nodes); g.join"
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        for program in (version, names)
    ]
    assert runs[0].stdout == f"gradvine {gradvine.__version__}\n", runs[0].stderr
    assert runs[1].stdout.startswith("False <function local_nodes"), runs[1].stderr
    assert "ImportError: gradvine.join needs numpy: pip install numpy" in runs[1].stderr


def test_help_and_completion_have_all_names():
    assert set(gradvine.__all__) - set(dir(gradvine)) in (set(), {"Sync", "attach", "finish"})
    for lacks in ("", "import sys; sys.modules['torch'] = None; "):
        program = f"{lacks}import gradvine, pydoc; print(pydoc.plain(pydoc.render_doc(gradvine)))"
        run = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert "join(" in run.stdout and "class Node" in run.stdout
        there = not lacks and "attach" in dir(gradvine)
        assert ("attach(" in run.stdout.replace("gradvine.attach(", "")) == there


def test_the_package_is_imported_without_torch():
    program = "import sys, gradvine; print('torch' in sys.modules, 'numpy' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    # What takes seconds is torch.
    assert run.stdout == "False False\n"
