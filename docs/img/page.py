#!/usr/bin/env python3
"""Takes the picture of docs/watching.md: page.py GRADVINE watching.png, with chromium on the path.

Five nodes train on loopback; one of them is stopped (SIGSTOP); another one's page is painted.
"""
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

PLACES = ["berlin", "lyon", "oslo", "rome", "turin"]


def main():
    gradvine, picture = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        topology = folder / "five.toml"
        nodes = "".join(f'[[node]]\nname = "{place}"\n' for place in PLACES)
        topology.write_text(f'name = "five"\nfamily = "ring"\nnodes = 5\n{nodes}')
        sets = ["--set", "run.evaluate_every=100", "--set", "run.id=digits"]
        run = ["train", "--processes", "--no-baseline", "-q", "--topology", str(topology), *sets]
        # A short run writes keys, rows and files.
        subprocess.run([gradvine, *run, "--rounds", "1", "--out", str(folder / "run")], check=True)
        experiment = folder / "run/nodes/experiment.toml"
        experiment.write_text(experiment.read_text().replace("rounds = 1\n", "rounds = 20000\n"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        files = [folder / "run/nodes" / place / "node.toml" for place in PLACES]
        for file in files:
            subprocess.run(["rm", "-r", str(file.parent / "run")], check=True)
        with files[0].open("a") as file:
            file.write(f'\n[status]\nlisten = "127.0.0.1:{port}"\n')
        running = [
            subprocess.Popen([gradvine, "node", str(file), "-q"], stderr=subprocess.DEVNULL)
            for file in files]
        try:
            known = files[0].parent / "run/status.json"
            while not known.exists() or json.loads(known.read_text())["round"] < 5000:
                time.sleep(0.1)
            running[2].send_signal(signal.SIGSTOP)
            time.sleep(8)
            still = folder / "page.html"
            still.write_text(saved(f"http://127.0.0.1:{port}/"))
        finally:
            for process in running:
                process.kill()
                process.wait()
        subprocess.run(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--window-size=1280,1180", "--virtual-time-budget=5000", f"--screenshot={picture}",
             f"file://{still}"],
            check=True, stderr=subprocess.DEVNULL)


def saved(address):
    """The page as one file with its data: the same, but it does not follow the run."""
    def read(path):
        return urllib.request.urlopen(address + path).read().decode()

    def known(path):
        return read(path).replace("<", "\\u003c")

    page = read("")
    for name in ["uplot.css", "page.css"]:
        link = f'<link rel="stylesheet" href="{name}">'
        page = page.replace(link, f"<style>{read(name)}</style>")
    data = f'{{"status": {known("status.json")}, "curves": {known("curves.json")}}}'
    page = page.replace("<script ", f'<script type="application/json" id="data">{data}</script>'
                        "<script ", 1)
    for name in ["uplot.js", "page.js"]:
        page = page.replace(f'<script src="{name}"></script>', f"<script>{read(name)}</script>")
    return page


main()
