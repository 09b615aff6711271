#!/usr/bin/env python3
"""Draws what a command printed as a terminal in SVG: terminal.py '$ gradvine train' < captured.txt > train.svg

The picture in the README is the output of
    script -qec 'cargo run --release --quiet -- train --out runs/picture' raw.txt
with the last state of the progress bar kept as a line of its own.
"""
import html
import re
import sys

WIDTH, SIZE, LINE, PAD = 8.43, 14, 19, 18


def lines(raw):
    """What a terminal shows at the end, and the fullest progress line that it showed on the way."""
    raw = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\r", raw)
    shown = []
    for line in raw.replace("\r\n", "\n").split("\n"):
        parts = [part.rstrip() for part in line.split("\r") if part.strip()]
        bars = [part for part in parts if part.lstrip().startswith("round ")]
        shown.extend(bars[-1:])
        shown.extend([part for part in parts if not part.lstrip().startswith("round ")] or ([] if bars else [""]))
    while shown and not shown[-1]:
        shown.pop()
    return [line for at, line in enumerate(shown) if line or (at and shown[at - 1])]


def main():
    text = [sys.argv[1]] + lines(sys.stdin.read())
    width = int(max(len(line) for line in text) * WIDTH + 2 * PAD)
    height = len(text) * LINE + 2 * PAD
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">')
    print(f'<rect width="{width}" height="{height}" rx="8" fill="#1b1f27"/>')
    # On the elements themselves: browsers set it there, so a group's would not be inherited.
    print('<style>text { white-space: pre }</style>')
    print(f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{SIZE}" fill="#d8dee9">')
    for at, line in enumerate(text):
        colour = ' fill="#8fbc8f"' if at == 0 else ' fill="#88c0d0"' if line.lstrip().startswith("round ") else ""
        print(f'<text x="{PAD}" y="{PAD + SIZE + at * LINE}"{colour}>{html.escape(line)}</text>')
    print("</g>\n</svg>")


main()
