#!/usr/bin/env python3
"""Finds wording and names that the project does not use, in comments, messages, pages and identifiers.

    python3 scripts/prose.py             the whole repository (this is `make lint`)
    python3 scripts/prose.py PATH...     every finding below these paths
    python3 scripts/prose.py --count     the number of findings per folder
    python3 scripts/prose.py --self-test checks the rules themselves

Prints `file:line: found -> suggestion` and exits with 1 if there is a finding.

The rules are in three tables: PROSE for sentences (comments, rustdoc, string literals, Markdown), NAMES for identifiers
in code, FILES for the names of modules. A rule that is wrong in one place gets an entry in ALLOW, with the reason.
Inline code (`...`) in comments and pages is not read as prose.
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# (path prefix, text as found, reason): findings that are right where they are.
ALLOW = [
    ("scripts/prose.py", None, "the rules name the words that they look for"),
]

# Files that others write: generated code and the schema of TFLite.
SKIP_FILES = {"schema_generated.rs", "schema.fbs"}
SKIP_FOLDERS = {".git", "target", "node_modules", "__pycache__"}

COMPARATIVES = (
    r"longer|shorter|more|less|fewer|larger|smaller|higher|lower|greater|slower|faster|better|worse|wider|narrower|"
    r"older|newer|earlier|later|deeper|bigger|different|other\s+than"
)

# (pattern, suggestion): in lower case, from the beginning of a word. Whitespace in a pattern matches line ends, too.
PROSE = [
    (r"(?:nobody|somebody|someone|everybody|everyone|anybody|anyone|whoever|whomever|whom)\b(?:'s)?",
     "name the reader, consumer, caller, thread or kernel; 'unused', 'no consumer'"),
    (r"who\b", "'which', 'that', or the noun: author, caller, thread, delegate"),
    (r"(?:says|say|said)\b", "'returns', 'reports', 'states', 'declares'"),
    (r"(?:is|are|was|were|be|been|being|not|unless|gets?)\s+told\b",
     "'receives', 'is passed', 'is notified'; 'is distinguished from' for 'is told apart'"),
    (r"so\s+many\b", "'N X', 'the number of X'"),
    (r"of\s+which\s+there\s+(?:is|are|was|were)\b", "name the count: 'N X'"),
    (r"(?:is|are|was|were|be|been|being)\s+no\b(?!\s+(?:" + COMPARATIVES + r")\b)(?!-)",
     "'is not a X', 'are not X', 'non-X'"),
    (r"anew\b", "'again'"),
    (r"mend(?:s|ed|ing)?\b", "'fix', 'repair'"),
    (r"(?:lies|lie|lying)\b", "'is', 'is stored', 'is located'"),
    (r"foresee(?:n|s|ing)?\b|foresaw\b", "'precompiled', 'cached', 'predicted'"),
    (r"today\b", "'currently', 'the current X', or nothing"),
    (r"(?:comes?|came|coming)\s+to\b", "'is', 'results in', 'amounts to', 'reaches'"),
    (r"(?:goes|go|went|gone|going)\s+on\b", "'continues', 'proceeds', 'happens'"),
    (r"the\s+field(?:'s|\s+(?:does|has|had|reads?|takes?|fills?|finds?|rounds?|multiply|multiplies|computes?|gives?|keeps?|adds?))\b",
     "'TFLite', 'LiteRT', 'the schema'"),
    (r"(?:in|of|by|from|beside|like|as|than|for|with|to)\s+the\s+field\b(?!\s+(?:of|`|named|is|was|that|which|in)\b)",
     "'TFLite', 'LiteRT', 'the schema'"),
    (r"(?:twins?|crew|seldom)\b", "'variants'; 'threads', 'thread share'; 'rarely'"),
    (r"life\b", "'lifetime', 'lifecycle'"),
]

# Only at the beginning of a comment.
STARTS = [
    (r"(?:It|They|He|She|Told|Who)\b", "begin with the thing's name"),
    (r"What\s+(?:is|are|was|were|has|had|it|they)\b", "begin with the thing's name"),
]

NAMES = [
    (r"\bMOST(?:_[A-Z0-9_]+)?\b", "MAX_*"),
    (r"\bENOUGH\b", "MIN_*"),
    (r"\bPATIENCE\b", "*_TIMEOUT"),
    (r"\bROOM\b", "*_BYTES"),
    (r"\bTurn\b", "Schedule"),
    (r"\bMissing\b", "Unavailable"),
    (r"\bObstacles?\b|\bobstacles?\b", "Blocker"),
    (r"\bFacts\b", "DeviceCaps"),
    (r"\bTexts\b|\bTEXTS\b", "ShaderSourceCache"),
    (r"\bSixteen\b", "I16Accumulator"),
    (r"\bforgive\b", "retry"),
    (r"\blet_go\b", "release_pages"),
    (r"\bscratch\s*\.\s*(?:ask|point)\s*\(", "request, bind"),
    (r"\b(?:[Tt]wins?|twin_\w+|\w+_twins?)\b", "variant"),
    (r"\b[Cc]rew\b", "thread_share"),
    (r"(?<!--)\b[Bb]undle\b", "chunk"),
    (r"\b[Ss]eldom\b", "rare_ops"),
    (r"\b(?:Later|Ahead)\b", "BackgroundCompiler, Warmup"),
    (r"\b(?:\w+_)?(?:nobody|somebody|everybody|anybody|whoever|anew|so_many|foreseen|today|goes_on|comes_to|the_field|"
     r"are_no|is_no)(?:_\w+)?\b", "a name without it"),
]

# Names of files and folders with Rust or WGSL code.
FILES = {
    "twins": "variants", "later": "background_compiler", "ahead": "warmup", "words": "storage_format",
    "dims": "symbolic_dims", "sizes": "size_samples", "crew": "thread_share", "bundle": "chunk",
    "seldom": "rare_ops", "life": "lifecycle",
}

# In each language, what is a comment (group c), what is a string (group s), and what else must be skipped as a whole.
RUST = r"""(?P<c>//[^\n]*|/\*.*?\*/)
    |(?P<s>b?r(?P<h>\#*)".*?"(?P=h)|[bc]?"(?:\\.|[^"\\])*")
    |b?'(?:\\[^\n]{1,10}?|[^'\\\n])'|'\w+"""
C = r"""(?P<c>//[^\n]*|/\*.*?\*/)|(?P<s>"(?:\\.|[^"\\\n])*")|'(?:\\.|[^'\\\n])+'"""
PYTHON = r"""(?P<c>\#[^\n]*)|(?P<s>\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
SCRIPT = r"""(?P<c>//[^\n]*|/\*.*?\*/)
    |(?P<s>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)
    |(?<=[(,=:!&|?{};\n])[ \t]*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/"""
# Pages for browsers: tags are code, everything else is prose; scripts and styles are in files of their own.
MARKUP = r"""(?P<c><!--.*?-->)|<(?:style|script)\b.*?</(?:style|script)>|<[^>]*>|(?P<s>(?<=>)[^<]+)"""
SHELL = r"""(?P<c>(?:^|(?<=[\s@]))\#[^\n]*)|(?P<s>"(?:\\.|[^"\\])*"|'[^'\n]*')"""
LANGUAGES = {
    ".rs": RUST, ".wgsl": C, ".c": C, ".h": C, ".py": PYTHON, ".sh": SHELL, ".toml": SHELL, "Makefile": SHELL,
    ".rs.in": RUST, ".toml.in": SHELL, ".js": SCRIPT, ".mjs": SCRIPT, ".ts": SCRIPT, ".css": SCRIPT, ".pyi": PYTHON,
    ".html": MARKUP,
}
FENCES = {"rust": RUST, "json": None, "c": C, "wgsl": C, "python": PYTHON, "sh": SHELL, "toml": SHELL, "diff": None}
CODE, VALUE = "\0", "\1"


def compiled(rules):
    return [(re.compile(pattern), suggestion) for pattern, suggestion in rules]


PROSE, STARTS, NAMES = compiled(PROSE), compiled(STARTS), compiled(NAMES)
LEXERS = {id(p): re.compile(p, re.DOTALL | re.VERBOSE | re.MULTILINE) for p in (RUST, C, PYTHON, SCRIPT, MARKUP, SHELL)}
COMMENT_MARKS = re.compile(r"^[ \t]*(?:///?|//!|/\*+|#+|\*(?!/))!?|\*/", re.MULTILINE)
LINE_COMMENT = re.compile(r"^[ \t]*(?:(?P<mark>//[/!]?)(?: |$))?", re.MULTILINE)
PLACEHOLDER = re.compile(r"\{\w*(?:\.\w+)*(?::[^{}\n]*)?\}")
# "There is no X" is fine.
THERE = re.compile(r"\bthere\s+(?:\w+\s+){0,2}$", re.IGNORECASE)
INLINE_CODE = re.compile(r"``[^`\n\0]+``|`[^`\n\0]*(?:\n[^`\n\0]*)?`")
FENCE = re.compile(r"^[ \t]*```.*$", re.MULTILINE)


def blank(text, filler):
    """`text` with everything but its line ends replaced."""
    return re.sub(r"[^\n]", filler, text)


def split(text, lexer):
    """Prose and code of a source file, each as long as the file, with everything else replaced by CODE or spaces."""
    prose, code, at = [], [], 0
    for match in LEXERS[id(lexer)].finditer(text):
        between = text[at:match.start()]
        # Comments on neighbouring lines are one text; anything else between two texts separates them.
        prose.append(between if not between.strip() else blank(between, CODE))
        code.append(between)
        at = match.end()
        piece = match.group()
        if match.group("c"):
            prose.append(COMMENT_MARKS.sub(lambda m: " " * len(m.group()), piece))
        elif match.group("s"):
            # A backslash at a line's end continues the string; quotes separate it from its neighbours.
            first, last = piece.find(piece.rstrip("#")[-1]), len(piece.rstrip("#")) - 1
            inner = re.sub(r"\\[\nnrt\"]", lambda m: " " + ("\n" if "\n" in m.group() else " "), piece[first + 1:last])
            if lexer is MARKUP:
                first, last, inner = -1, len(piece), piece
            inner = PLACEHOLDER.sub(lambda m: VALUE * len(m.group()), inner)
            prose.append(CODE * (first + 1) + inner + CODE * (len(piece) - last))
        else:
            prose.append(blank(piece, CODE))
        code.append(blank(piece, " "))
    prose.append(blank(text[at:], CODE))
    code.append(text[at:])
    return "".join(prose), "".join(code)


def page(text):
    """Prose of a Markdown page: its text, and the comments and strings of its code blocks."""
    out, at = [], 0
    for match in re.finditer(r"^([ \t]*)```([\w-]*)[^\n]*\n(.*?)^[ \t]*```", text, re.DOTALL | re.MULTILINE):
        out.append(text[at:match.start()] + blank(text[match.start():match.start(3)], CODE))
        block, lexer = match.group(3), FENCES.get(match.group(2).split(",")[0])
        block = split(block, lexer)[0] if lexer else blank(block, CODE) if match.group(2) == "diff" else block
        out.append(block.replace("`", " ") + blank(text[match.end(3):match.end()], CODE))
        at = match.end()
    out.append(text[at:])
    # Addresses are not prose.
    return re.sub(r"\]\([^)\s]*\)|https?://\S+", lambda m: CODE * len(m.group()), "".join(out))


def findings(path, text):
    """(offset, found, suggestion) of each finding in a file."""
    name = os.path.basename(path)
    lexer = next((p for end, p in LANGUAGES.items() if name.endswith(end)), None)
    prose, code = (page(text), "") if name.endswith(".md") else split(text, lexer)
    # What stands in backticks keeps its length, so that offsets are those of the file.
    prose = FENCE.sub(lambda m: blank(m.group(), " "), prose)
    prose = INLINE_CODE.sub(lambda m: blank(m.group(), "`"), prose)
    lower = prose.lower()
    for rule, suggestion in PROSE:
        for match in rule.finditer(lower):
            start, end = match.span()
            inside = start > 0 and (lower[start - 1].isalnum() or lower[start - 1] == "_")
            there_is = lower.endswith(" no", start, end) and THERE.search(lower, max(start - 40, 0), start)
            if not inside and not there_is:
                yield start, prose[start:end], suggestion
    if lexer is not None and lexer not in (SHELL, PYTHON, MARKUP):
        before = None
        for comment in LINE_COMMENT.finditer(text):
            mark = comment.group("mark")
            for rule, suggestion in STARTS if mark and mark != before else ():
                match = rule.match(prose, comment.end())
                if match:
                    yield match.start(), match.group(), suggestion
            before = mark
    for rule, suggestion in NAMES:
        for match in rule.finditer(code):
            yield match.start(), match.group(), suggestion


def relative(path):
    return os.path.relpath(os.path.abspath(path), ROOT).replace(os.sep, "/")


def files(paths):
    for path in paths:
        if os.path.isfile(path):
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(f for f in folders if f not in SKIP_FOLDERS)
            yield from (os.path.join(folder, name) for name in sorted(names))


def check(paths):
    """(path, line, found, suggestion) of each finding."""
    for path in files(paths):
        name = os.path.basename(path)
        if name in SKIP_FILES or not name.endswith((".md", *LANGUAGES)):
            continue
        shown = relative(path)
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        if name.endswith((".rs", ".wgsl")):
            parts = shown.rsplit(".", 1)[0].split("/")
            yield from ((shown, 1, part + ("/" if part != parts[-1] else ""), FILES[part]) for part in parts if part in FILES)
        for at, found, suggestion in sorted(findings(path, text)):
            found = " ".join(found.split())
            allowed = (shown.startswith(prefix) and fragment in (None, found) for prefix, fragment, _ in ALLOW)
            if not any(allowed):
                yield shown, text.count("\n", 0, at) + 1, found, suggestion


# (file name, text, findings).
EXAMPLES = [
    ("a.rs", "/// So\n/// many elements.\nfn f() {}", ["So many"]),
    ("a.rs", "// `nobody` is a name. There is no bias. It is no longer here.", []),
    ("a.rs", "// It is here.\n// It goes on.\n\n/// What is left.", ["It", "goes on", "What is"]),
    ("a.rs", "let a = \"{says} is no \\\n    scale\"; let b: &'static str = r#\"whoever \"x\" lies\"#; let c = '\"'; // today", [
        "is no", "whoever", "lies", "today"]),
    ("a.rs", "const MOST_TAPS: u32 = 4; enum Turn {} fn goes_on() {} fn turn() {}", ["MOST_TAPS", "Turn", "goes_on"]),
    ("a.rs", "let a = format!(\"{one} lies in {other}, {dim} says {size:?}\");", ["lies", "says"]),
    ("a.rs", "/// The field `x` of a table is read as TFLite reads it.", []),
    ("a.wgsl", "// As the field does it.\nlet x = 1.0;", ["As the field", "the field does"]),
    ("a.py", "\"\"\"Says so.\"\"\"\nlies = 1  # anew\nprint('who')", ["Says", "anew", "who"]),
    ("a.sh", "say hello # is told\necho \"so many\"", ["is told", "so many"]),
    ("a.js", "const text = `${who} says 'so'`; // today\nconst rule = /\"'/; /* anew */ throw new Error('it lies');", [
        "says", "today", "anew", "lies"]),
    ("a.html", "<p class=\"who\">So many.</p><!-- anew --><script>let who = 1;</script><p>Mended</p>", ["So many", "anew", "Mended"]),
    ("a.md", "Read [who](who.md), `nobody`.\n\n```rust\nlet lies = 1; // mend\n```\n\nIs no X.", ["who", "mend", "Is no"]),
]


def self_test():
    failed = 0
    for name, text, expected in EXAMPLES:
        found = [" ".join(found.split()) for _, found, _ in sorted(findings(name, text))]
        if found != expected:
            failed += 1
            print(f"prose: self-test: {text!r}: found {found}, expected {expected}")
    return 1 if failed else 0


def main(arguments):
    if "--self-test" in arguments:
        return self_test()
    if "-h" in arguments or "--help" in arguments:
        print(__doc__.strip())
        return 0
    counting = "--count" in arguments
    paths = [a for a in arguments if a != "--count"]
    found = list(check(paths or [ROOT]))
    if counting:
        counts = {}
        for path, *_ in found:
            folder = os.path.dirname(path) or path
            counts[folder] = counts.get(folder, 0) + 1
        for folder, count in sorted(counts.items()):
            print(f"{count:6} {folder}")
    else:
        for path, line, text, suggestion in found:
            print(f"{path}:{line}: {text} -> {suggestion}")
    if found:
        print(f"prose: {len(found)} findings", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
