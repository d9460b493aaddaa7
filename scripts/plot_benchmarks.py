#!/usr/bin/env python3
"""Draws the plots of docs/benchmarks.md from the tables of that page.

    python3 scripts/plot_benchmarks.py            write docs/images/bench-*.svg (this is `make plots`)
    python3 scripts/plot_benchmarks.py --check    exit with 1 if one of them is stale (part of `make lint`)

A comment `<!-- plot: NAME -->` precedes each table that is read. Needs Python 3.9 and its standard library. The output
depends only on the tables, so that an unchanged page produces unchanged files.
"""

import html
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "benchmarks.md")
IMAGES = os.path.join(ROOT, "docs", "images")

LEFT, RIGHT, TOP, WIDTH = 216, 56, 84, 760
BAR, GAP = 11, 12

# With its own background, a plot is readable if a page's theme differs from the system's.
STYLE = """
    svg { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
    .page { fill: #ffffff; stroke: #d0d7de; } .text { fill: #1f2328; } .soft { fill: #59636e; }
    .grid { stroke: #d8dee4; } .one { stroke: #cf222e; stroke-width: 1.5; } .one-text { fill: #cf222e; }
    .a { fill: #0969da; } .b { fill: #8ab8ee; }
    .value { font-size: 10px; paint-order: stroke; stroke: #ffffff; stroke-width: 3px; } .title { font-size: 15px; font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; stroke: #3d444d; } .text { fill: #f0f6fc; } .soft { fill: #9198a1; }
      .grid { stroke: #2a313c; } .one { stroke: #ff7b72; } .one-text { fill: #ff7b72; }
      .a { fill: #4493f8; } .b { fill: #1f5fb3; } .value { stroke: #0d1117; }
    }
"""


def table(page, name):
    """The rows of the table after `<!-- plot: NAME -->`: dictionaries from column to text."""
    match = re.search(rf"<!-- plot: {re.escape(name)} -->\n+((?:\|.*\n)+)", page)
    if not match:
        sys.exit(f"{PAGE}: no table behind `<!-- plot: {name} -->`")
    head, _, *rows = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in match.group(1).splitlines())
    return [dict(zip(head, row)) for row in rows]


def number(text):
    return float(text.replace(",", "")) if text else None


def column(page, name, label):
    return {row["model"]: number(row[label]) for row in table(page, name)}


def joined(*columns):
    """(model, values) for each model of the first column."""
    return [(model, [values.get(model) for values in columns]) for model in columns[0]]


def plot(title, axis, legend, rows, top, step, unit=""):
    """A horizontal bar chart. `rows` are (label, values), one value per legend entry; a missing value is None."""
    bars = len(legend)
    row = bars * BAR + GAP
    height = TOP + len(rows) * row + 52
    bottom = TOP + len(rows) * row
    span = WIDTH - LEFT - RIGHT

    def x(value):
        return round(LEFT + span * min(value, top) / top, 1)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"  <title>{html.escape(title)}</title>",
        f"  <style>{STYLE}  </style>",
        f'  <rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        f'  <text class="text title" x="20" y="28">{html.escape(title)}</text>',
    ]
    at = 20
    for i, entry in enumerate(legend):
        out.append(f'  <rect class="{"ab"[i]}" x="{at}" y="42" width="12" height="12" rx="2"/>')
        out.append(f'  <text class="soft" x="{at + 18}" y="52">{html.escape(entry)}</text>')
        at += 18 + 7 * len(entry) + 24
    for i in range(int(top / step + 1e-9) + 1):
        value = i * step
        out.append(f'  <line class="grid" x1="{x(value)}" y1="{TOP - 6}" x2="{x(value)}" y2="{bottom}"/>')
        out.append(f'  <text class="soft" x="{x(value)}" y="{bottom + 18}" text-anchor="middle">{value:g}</text>')
    out.append(f'  <text class="soft" x="{LEFT + span / 2}" y="{bottom + 38}" text-anchor="middle">{html.escape(axis)}</text>')
    labels = []
    for r, (label, values) in enumerate(rows):
        y = TOP + r * row
        middle = y + bars * BAR / 2 + 4
        out.append(f'  <text class="text" x="{LEFT - 10}" y="{middle:g}" text-anchor="end">{html.escape(label)}</text>')
        for i, value in enumerate(values):
            if value is None:
                continue
            end = x(value)
            out.append(f'  <rect class="{"ab"[i]}" x="{LEFT}" y="{y + i * BAR}" width="{round(end - LEFT, 1)}" height="{BAR - 1}" rx="1"/>')
            shown = f"{value:.1f}{unit}" if unit else f"{value:.2f}"
            labels.append(f'  <text class="text value" x="{end + 5}" y="{y + i * BAR + 9}">{shown}</text>')
    if not unit:
        out.append(f'  <line class="one" x1="{x(1)}" y1="{TOP - 6}" x2="{x(1)}" y2="{bottom}"/>')
        out.append(f'  <text class="one-text" x="{x(1)}" y="{TOP - 11}" text-anchor="middle">equal</text>')
    out += labels + ["</svg>"]
    return "\n".join(out) + "\n"


def plots(page):
    """File names and contents."""
    first = {row["model"]: [number(row[label]) / 1000 for label in ("ours (wgpu) ms", "LiteRT (webgpu) ms")]
             for row in table(page, "gpu-first")}
    return {
        "bench-cpu.svg": plot(
            "CPU: time per inference relative to LiteRT with XNNPACK", "time of Delegraph / time of LiteRT (lower is faster)",
            ["1 thread", "2 threads"],
            joined(column(page, "cpu-1", "ratio"), column(page, "cpu-2", "ratio")), 1.2, 0.2),
        "bench-gpu.svg": plot(
            "GPU: time per inference relative to LiteRT's WebGPU accelerator",
            "time of Delegraph / time of LiteRT (lower is faster)", ["software Vulkan driver"],
            joined(column(page, "gpu", "ratio")), 1.2, 0.2),
        "bench-first.svg": plot(
            "GPU: seconds until the first result, all caches empty", "seconds (lower is faster)",
            ["Delegraph", "LiteRT (WebGPU)"], list(first.items()), 30, 5, " s"),
        "bench-memory.svg": plot(
            "Peak memory relative to LiteRT, one thread", "peak of Delegraph / peak of LiteRT (lower is less memory)",
            ["to XNNPACK", "to LiteRT's built-in kernels"],
            joined(column(page, "memory", "to XNNPACK"), column(page, "memory", "to built-in")), 1.2, 0.2),
    }


def main(arguments):
    with open(PAGE, encoding="utf-8") as file:
        drawn = plots(file.read())
    stale = []
    for name, text in drawn.items():
        path = os.path.join(IMAGES, name)
        old = open(path, encoding="utf-8").read() if os.path.exists(path) else None
        if old == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            os.makedirs(IMAGES, exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    if "--check" in arguments and stale:
        print(f"docs/images/ is stale ({', '.join(stale)}): run `make plots`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
