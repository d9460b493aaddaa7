#!/usr/bin/env python3
"""Checks the links of the repository's Markdown pages.

    python3 scripts/links.py [PAGE...]     all pages without arguments (part of `make lint`)

A relative link must lead to a file, and its anchor to a heading there. A path in inline code, such as `core/src/ops/mod.rs`,
must exist, relative to the repository or to the page, if it begins with a top-level folder of the repository. Paths with
FAMILY, NAME, `*` or `…` are patterns and are not checked. Prints `page:line: link: error` and exits with 1 on any error.
Needs Python 3.9 and its standard library.
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SKIP = {".git", "target", "node_modules"}
# Paths in the crate that readers of a page create.
ELSEWHERE = {"docs/write-a-delegate.md": {"src/lib.rs", "src/kernel.rs", "tests/layers.rs", "tests/delegate.rs",
                                          "tests/conformance.rs"},
             "docs/conformance.md": {"tests/conformance.rs"}}
CODE_BLOCK = re.compile(r"^[ \t]*```.*?^[ \t]*```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)", re.MULTILINE)
PATH = re.compile(r"`([\w.-]+(?:/[\w.{},-]+)*/?)`")
PLACEHOLDER = re.compile(r"FAMILY|NAME|\*|…|^target\b")


def relative(path):
    return os.path.relpath(path, ROOT).replace(os.sep, "/")


def pages():
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(f for f in folders if f not in SKIP)
        yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(".md"))


def without_code(text):
    return CODE_BLOCK.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def anchors(path):
    """The anchors of a page's headings, as GitHub makes them."""
    with open(path, encoding="utf-8") as file:
        headings = re.findall(r"^#+ +(.+?) *$", without_code(file.read()), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def expanded(path):
    """Expands `{a,b}` in a path."""
    match = re.search(r"\{([^{}]*)\}", path)
    if not match:
        return [path]
    return [p for part in match.group(1).split(",") for p in expanded(path[:match.start()] + part + path[match.end():])]


def wrong(page):
    with open(page, encoding="utf-8") as file:
        text = without_code(file.read())
    top = {name for name in os.listdir(ROOT) if name not in SKIP and os.path.isdir(os.path.join(ROOT, name))}
    for match in LINK.finditer(text):
        link = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), file)) if file else page
        if not os.path.exists(target):
            yield match.start(), f"{link}: no such file"
        elif anchor and target.endswith(".md") and anchor not in anchors(target):
            yield match.start(), f"{link}: no such heading"
    for match in PATH.finditer(text):
        path = match.group(1)
        if path.split("/")[0] not in top or "/" not in path or PLACEHOLDER.search(path):
            continue
        for one in expanded(path):
            known = (os.path.join(ROOT, one), os.path.join(os.path.dirname(page), one))
            if not any(map(os.path.exists, known)) and one not in ELSEWHERE.get(relative(page), ()):
                yield match.start(), f"{one}: no such file"


def main(arguments):
    bad = 0
    for page in map(os.path.abspath, arguments or pages()):
        with open(page, encoding="utf-8") as file:
            text = file.read()
        for at, what in wrong(page):
            bad += 1
            print(f"{relative(page)}:{text.count(chr(10), 0, at) + 1}: {what}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
