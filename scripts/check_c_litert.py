#!/usr/bin/env python3
"""Builds the tests of TensorFlow Lite's C API against libtensorflowlite_c, and runs them.

    scripts/check_c_litert.py [--library DIR] [--source DIR]

The tests come from a source tree of LiteRT or TensorFlow (`--source`, or LITERT_SOURCE; a folder with tflite/core/c or
tensorflow/lite/core/c). They are compiled with the headers of the tree, and need libgtest-dev and a C++ compiler. Tests
that use C++ classes of the runtime are omitted: no shared library has these classes. Tests with missing requirements
are skipped with a message.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "target" / "c-litert"

# Test files, below tflite/, and the least number of tests that are built from each.
FILES = [
    ("core/c/c_api_opaque_test.cc", 53),
    ("c/c_api_signature_runner_test.cc", 2),
    ("core/c/c_api_test.cc", 22),
    ("core/c/c_api_experimental_test.cc", 4),
]

# The parts of other libraries that the tests use, except the runtime.
STUBS = {
    "tflite/testing/util.h": """
#pragma once
#include <cstdarg>
#include <cstdio>
#include <string>
namespace tflite {
class TestErrorReporter {
 public:
  int Report(const char* format, va_list args) {
    char text[4096];
    int size = vsnprintf(text, sizeof text, format, args);
    messages_ += text;
    calls_ += 1;
    return size;
  }
  const std::string& error_messages() const { return messages_; }
  int num_calls() const { return calls_; }

 private:
  std::string messages_;
  int calls_ = 0;
};
}  // namespace tflite
""",
    "tflite/util.h": "#pragma once\nnamespace tflite { constexpr int kDefaultTensorAlignment = 64; }\n",
    "absl/strings/string_view.h": "#pragma once\n#include <string_view>\nnamespace absl { using std::string_view; }\n",
}

# A test or function with one of these needs classes that are not in a shared library.
INTERNAL = re.compile(
    r"tflite::(Subgraph|Interpreter|internal|ops|delegates|DynamicBuffer|BuiltinOperator|GetString)|SimpleDelegate|TestDelegate|"
    r"TestFP16Delegation|SubgraphIsDelegationSkippable|AddNode|BuiltinOpResolver"
)
INCLUDES = re.compile(
    r'#include "tflite/(c/c_api_internal|core/subgraph|delegates/.*|schema/.*|string_util|c/c_api_for_testing)\.h".*\n|'
    r"using (testing::|::)?tflite::.*(SimpleDelegate|TestDelegate|TestFP16Delegation);\n"
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=str(ROOT / "target" / "c-check"), help="folder with lib/ and include/")
    parser.add_argument("--source", default=os.environ.get("LITERT_SOURCE"))
    options = parser.parse_args()
    reason = missing(options)
    if reason:
        print(f"c-litert: left out: {reason}")
        return 0
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    tree = prepare(Path(options.source))
    failed = [name for name, minimum in FILES if not run_gtest(tree, options.library, name, minimum)]
    if not run_c(tree, options.library):
        failed.append("c/c_test.c")
    if failed:
        print(f"c-litert: failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    return 0


def missing(options):
    if not options.source:
        return "there is no source of LiteRT (--source DIR, or LITERT_SOURCE)"
    if not find(Path(options.source)):
        return f"{options.source} has neither tflite/core/c nor tensorflow/lite/core/c"
    if not list(Path(options.library).glob("lib/libtensorflowlite_c.*")):
        return f"there is no library in {options.library} (make c-check)"
    if not shutil.which("c++") or not shutil.which("cc"):
        return "there is no C++ compiler"
    if not Path("/usr/include/gtest/gtest.h").exists():
        return "gtest is not installed (apt install libgtest-dev libgmock-dev)"
    return None


def find(source):
    for folder in ("tflite", "tensorflow/lite"):
        if (source / folder / "core/c/c_api_opaque_test.cc").exists():
            return source / folder
    return None


def prepare(source):
    """Copies headers and data of the tree to the paths of LiteRT. Returns the folder."""
    tree, lite = OUT / "tree", find(source)
    for pattern in ("c/*", "core/c/*", "core/async/c/*.h", "converter/core/**/*.h", "builtin_ops.h", "testdata/*.bin"):
        for file in lite.glob(pattern):
            if file.is_file():
                to = tree / "tflite" / file.relative_to(lite)
                to.parent.mkdir(parents=True, exist_ok=True)
                if file.suffix in (".h", ".cc", ".c"):
                    to.write_text(file.read_text().replace("tensorflow/lite/", "tflite/"))
                else:
                    shutil.copy(file, to)
    for name, text in STUBS.items():
        file = tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tree


def public(text):
    """Returns a test file without the code that uses classes of the runtime."""
    text = INCLUDES.sub("", text)
    kept = []
    # Each definition at the outermost level ends with a brace in the first column.
    for part in re.split(r"(?<=\n\}\n)", text):
        head = re.search(r"^(TEST(_F)?\(|[A-Za-z].*\{$|[a-z][\w:<>*& ]+\()", part, re.M)
        if head and INTERNAL.search(part[head.start():]):
            # Directives and declarations before the definition are kept.
            part = "\n".join(line for line in part[: head.start()].splitlines() if line.startswith(("#", "namespace"))) + "\n"
            kept.append(part)
        else:
            kept.append(part)
    return "".join(kept)


def run_gtest(tree, library, name, minimum):
    source = OUT / Path(name).name
    text = (tree / "tflite" / name).read_text()
    whole = len(re.findall(r"^TEST(_F)?\(", text, re.M))
    source.write_text(public(text))
    program = OUT / source.stem
    command = ["c++", "-std=c++20", "-O0", "-w", f"-I{tree}", str(source), "-o", str(program), f"-L{library}/lib"]
    command += ["-ltensorflowlite_c", f"-Wl,-rpath,{library}/lib", "-lgmock", "-lgtest", "-lgtest_main", "-lpthread"]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        print(built.stderr[-6000:], file=sys.stderr)
        return False
    run = subprocess.run([str(program)], capture_output=True, text=True, cwd=tree, timeout=300)
    passed = re.search(r"\[  PASSED  \] (\d+) test", run.stdout)
    passed = int(passed.group(1)) if passed else 0
    total = len(re.findall(r"^TEST(_F)?\(", source.read_text(), re.M))
    left_out = f", {whole - total} of classes left out" if whole > total else ""
    print(f"c-litert: {Path(name).name}: {passed} of {total} tests passed{left_out}")
    if run.returncode or passed < max(total, minimum):
        print(run.stdout[-6000:] + run.stderr[-3000:], file=sys.stderr)
        return False
    return True


def run_c(tree, library):
    program = OUT / "c_test"
    command = ["cc", "-std=c11", "-w", f"-I{tree}", str(tree / "tflite/c/c_test.c"), "-o", str(program)]
    command += [f"-L{library}/lib", "-ltensorflowlite_c", f"-Wl,-rpath,{library}/lib"]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        print(built.stderr[-6000:], file=sys.stderr)
        return False
    run = subprocess.run([str(program)], capture_output=True, text=True, cwd=tree, timeout=300)
    print(f"c-litert: c_test.c: {'no error' if run.returncode == 0 else 'fails'}")
    if run.returncode:
        print(run.stderr[-3000:], file=sys.stderr)
    return run.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
