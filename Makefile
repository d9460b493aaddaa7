# `make demo` and `make test` are all that a fresh clone needs; `make help` lists the rest.
# CARGO_FLAGS reaches every cargo command (`make test CARGO_FLAGS=--offline`).

PYTHON ?= python3
CARGO ?= cargo
CARGO_FLAGS ?=
DELEGRAPH_CACHE ?= $(HOME)/.cache/delegraph
export DELEGRAPH_CACHE

# Without a desktop session, Mesa's device-selection layer complains whenever adapters are listed. Nothing here is displayed.
ifeq ($(XDG_RUNTIME_DIR),)
export NODEVICE_SELECT := 1
endif

FETCH := $(PYTHON) scripts/fetch_models.py
VENVS := target/venvs
# Modules that macros declare are invisible to `cargo fmt`, so the files are named.
SOURCES = $(shell find core delegate-api bindings interpreter shaders delegate-wgpu conformance examples src tests fuzz/fuzz_targets \
    -name '*.rs' ! -name schema_generated.rs)
TFLITE_MODELS = $(wildcard assets/digits/*.tflite) $(wildcard $(DELEGRAPH_CACHE)/models/*.tflite)

.DEFAULT_GOAL := help
.PHONY: help demo c install-c c-check c-asan c-litert c-clients web web-check web-site python python-check python-versions python-bench python-clients check check-targets check-features test-arm test-wasm check-semver check-package doc test lint fmt bench bench-litert gpu-kit models setup schema schema-check ops plots goldens digits litert-check mutants fuzz miri asan coverage clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## segment a portrait and find its face, on the GPU and on the CPU: target/demo/*.png
	@$(FETCH) --optional selfie_segmentation.tflite face_detection_short_range.tflite astronaut.png || true
	$(CARGO) run $(CARGO_FLAGS) --profile demo -p delegraph-demo

check: ## format, clippy and unit tests of the crates that differ from BASE (default: the last commit)
	@CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/check.sh $(BASE)

check-targets: ## type-check the library for macOS, Windows, Android, WebAssembly and ARM Linux
	@CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/check_targets.sh $(TARGETS)

check-features: ## type-check every combination of the facade's features
	@CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/check_features.sh

# Not a part of `test`: the kernels are compiled a second time, and emulation is slow. ARM=quick runs the primitives alone.
test-arm: ## kernels, conformance cases and goldens on aarch64 by emulation, where that can be installed; CORPUS=DIR adds a corpus
	@CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" CORPUS="$(CORPUS)" sh scripts/test_arm.sh $(or $(ARM),all)

test-wasm: ## tests of the kernels as WebAssembly in Node, where there is one
	@CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/test_wasm.sh

check-semver: ## compare the public API with the last tag, where cargo-semver-checks is installed
	@tag=$$(git describe --tags --abbrev=0 2>/dev/null) || { echo "check-semver: left out: no version is tagged yet"; exit 0; }; \
	 if $(CARGO) semver-checks --version >/dev/null 2>&1; then \
	    $(CARGO) semver-checks --workspace --exclude delegraph-schema --baseline-rev $$tag; \
	 else echo "check-semver: left out: cargo-semver-checks is not installed (cargo install cargo-semver-checks)"; fi

# cargo keeps the crates that it unpacked and compiled in an earlier run, and takes them again, since their version is the same.
check-package: ## package and build every crate as crates.io would get it
	@home="$${CARGO_HOME:-$$HOME/.cargo}"; \
	 rm -rf "$$home"/registry/src/-*/delegraph-* "$$home"/registry/cache/-*/delegraph-* target/package-check/debug/.fingerprint/delegraph-*
	CARGO_TARGET_DIR=target/package-check $(CARGO) package $(CARGO_FLAGS) --workspace --allow-dirty

doc: ## the documentation of all crates, without warnings: target/doc
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(CARGO_FLAGS) --workspace --no-deps

test: setup ## everything: lint, unit, conformance and doc tests, examples
	@$(FETCH) --optional || true
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory schema-check
	@CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" MAKE="$(MAKE)" sh scripts/test.sh

c: ## build the C APIs, TensorFlow Lite's and Delegraph's own: target/c/lib, target/c/include
	CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/build_c.sh target/c $(C_FLAGS)

install-c: ## build the C APIs and install them below PREFIX (default: /usr/local)
	CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/build_c.sh $(or $(PREFIX),/usr/local) $(C_FLAGS)

c-check: ## exported symbols, headers and examples of the C APIs, where there is a C compiler
	@CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/check_c.sh

# Not a part of `test`: everything is compiled with AddressSanitizer. MODELS=DIR adds a folder of damaged models.
c-asan: ## AddressSanitizer over the C APIs: wrong calls, damaged models
	@CARGO="$(CARGO)" DELEGRAPH_HOSTILE="$(abspath $(MODELS))" sh scripts/sanitize.sh c

# Not a part of `test`: needs a source tree of LiteRT (LITERT_SOURCE=DIR), libgtest-dev and libgmock-dev.
c-litert: ## run LiteRT's own tests of the C API on the library of c-check; what cannot be had is left out
	@$(PYTHON) scripts/check_c_litert.py

# Not a part of `test`: packages and crates are fetched.
c-clients: ## run programs of others from PyPI on their own library and on target/c, and compare; CLIENTS_FLAGS=--crates for crates
	@$(PYTHON) scripts/check_c_clients.py $(CLIENTS_FLAGS)

python: $(VENVS)/python/ready ## build the Python wheel: target/wheels/delegraph-*.whl
	$(VENVS)/python/bin/maturin build --release --manifest-path bindings/python/Cargo.toml --target-dir target --out target/wheels

python-check: ## build the wheel and test it in a virtual environment, where that can be installed
	@mkdir -p target
	@if $(MAKE) --no-print-directory $(VENVS)/python/ready >target/python-check.log 2>&1; then CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/check_python.sh $(VENVS)/python; \
	 else echo "python: left out: maturin, pytest and NumPy cannot be installed here (the reason is in target/python-check.log)"; fi

# Not a part of `test`: an environment per version.
python-versions: ## test the wheel of `make python` on each CPython from 3.9 on that is installed
	@sh scripts/check_python_versions.sh "$$(ls target/wheels/*.whl 2>/dev/null | head -n 1)"

python-bench: $(VENVS)/goldens/ready ## time calls of the wheel of `make python` beside LiteRT's, and its import
	@$(VENVS)/goldens/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps target/wheels/*.whl
	@$(VENVS)/goldens/bin/python scripts/bench_python.py $(BENCH_FLAGS)
	@$(VENVS)/goldens/bin/python scripts/bench_python.py --imports

# Not a part of `test`: the programs' packages are about 1 GB.
python-clients: ## run programs of others from PyPI on LiteRT and on the wheel of python-check, and compare; what cannot be had is left out
	@wheel=$$(ls target/wheels-test/*.whl 2>/dev/null || ls target/wheels/*.whl 2>/dev/null); \
	 if [ -n "$$wheel" ]; then $(PYTHON) scripts/check_clients.py $$wheel $(CLIENTS_FLAGS); \
	 else echo "python-clients: left out: there is no wheel (make python)"; fi

web: ## build the npm package: target/web/delegraph-*.tgz
	CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/build_web.sh target/web

web-site: ## build the pages of examples/web with the package and their models: target/web/site
	@$(FETCH) --optional selfie_segmentation.tflite face_detection_short_range.tflite astronaut.png || true
	CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/build_web_site.sh target/web

web-check: ## build the package quickly and test it in Node and Chromium, where they can be installed
	@CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/check_web.sh $(WEB_FILTER)

litert-check: ## delegates inside LiteRT, where that is installed
	@CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/build_checks.sh
	@python=$(VENVS)/goldens/bin/python; [ -x $$python ] || python=$(PYTHON); \
	    for library in examples/libcpu_delegate libdelegraph_wgpu; do \
	        $$python scripts/check_litert_delegate.py target/debug/$$library.so --cycles 20 || exit 1; done

# rustfmt and clippy come with Rust's default installation; cargo-deny and typos are extras.
lint: ## formatting, clippy and, where they are installed, cargo-deny and typos
	@if rustfmt --version >/dev/null 2>&1; then echo "rustfmt --check"; rustfmt --edition 2024 --check $(SOURCES); \
	 else echo "lint: left out: rustfmt is not installed (rustup component add rustfmt)"; fi
	@if $(CARGO) clippy --version >/dev/null 2>&1; then echo "$(CARGO) clippy"; \
	    $(CARGO) clippy $(CARGO_FLAGS) --workspace --all-targets -- -D warnings; \
	 else echo "lint: left out: clippy is not installed (rustup component add clippy)"; fi
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --offline check bans licenses sources; \
	 else echo "lint: left out: cargo-deny is not installed (cargo install cargo-deny)"; fi
	@if typos --version >/dev/null 2>&1; then typos; \
	 else echo "lint: left out: typos is not installed (pip install typos)"; fi
	@if $(PYTHON) -c "import tomllib" 2>/dev/null; then $(PYTHON) scripts/mutants.py --check; \
	 else echo "lint: left out: planted faults are not checked (Python 3.11 reads their list)"; fi
	@if $(PYTHON) --version >/dev/null 2>&1; then \
	    $(PYTHON) scripts/prose.py --self-test && $(PYTHON) scripts/prose.py && $(PYTHON) scripts/links.py && $(PYTHON) scripts/plot_benchmarks.py --check; \
	 else echo "lint: left out: wording, links and plots are not checked (Python 3.9 runs scripts/prose.py)"; fi

fmt: ## format every source file
	@rustfmt --edition 2024 $(SOURCES)

bench: setup ## load, prepare, first and median times of every model, on the CPU and on the GPU
	@$(FETCH) --optional || true
	$(CARGO) build $(CARGO_FLAGS) --release
	@$(foreach model,$(TFLITE_MODELS),$(foreach delegate,cpu wgpu,\
	    $(CARGO) run $(CARGO_FLAGS) --quiet --release -- bench $(model) --delegate $(delegate) || true;))

# Not a part of `test`: the programs are compiled once more. The page writer and the limits are tested with the workspace.
gpu-kit: ## build target/gpu-kit, which checks and measures GPUs on machines without Rust: docs/gpu-hardware.md
	@$(FETCH) --optional || true
	CARGO="$(CARGO)" CARGO_FLAGS="$(CARGO_FLAGS)" sh scripts/build_gpu_kit.sh target/gpu-kit

bench-litert: $(VENVS)/goldens/ready ## our CPU kernels beside LiteRT's XNNPACK on the real models, as ratios
	@$(FETCH)
	$(CARGO) build $(CARGO_FLAGS) --release
	$(VENVS)/goldens/bin/python scripts/bench_litert.py $(BENCH_FLAGS) $(wildcard $(DELEGRAPH_CACHE)/models/*.tflite)

models: ## fetch the ten real models and the photo into the cache
	@$(FETCH)

setup: ## install what a fresh Debian machine lacks
	@sh scripts/setup.sh

schema: $(VENVS)/schema/ready ## regenerate core/schema/src/schema_generated.rs from core/schema/schema.fbs
	$(VENVS)/schema/bin/flatc --rust -o core/schema/src core/schema/schema.fbs

schema-check: ## compare the committed FlatBuffer code with what its generator writes, where that can be installed
	@mkdir -p target
	@if $(MAKE) --no-print-directory $(VENVS)/schema/ready >target/schema-check.log 2>&1; then \
	    rm -rf target/schema && mkdir -p target/schema && \
	    $(VENVS)/schema/bin/flatc --rust -o target/schema core/schema/schema.fbs && \
	    { cmp target/schema/schema_generated.rs core/schema/src/schema_generated.rs || \
	      { echo "schema: core/schema/src/schema_generated.rs is stale: run \`make schema\`"; exit 1; }; }; \
	 else echo "schema: left out: flatc cannot be installed here (the reason is in target/schema-check.log)"; fi

ops: ## regenerate the support table docs/ops.md
	@mkdir -p target
	@$(CARGO) run $(CARGO_FLAGS) --quiet -- ops > target/ops.md
	@{ sed '/^| op |/,$$d' docs/ops.md; cat target/ops.md; } > target/ops-new.md && mv target/ops-new.md docs/ops.md

plots: ## draw docs/images/bench-*.svg from the tables of docs/benchmarks.md
	$(PYTHON) scripts/plot_benchmarks.py

goldens: $(VENVS)/goldens/ready models ## run LiteRT on every model and single-op case and rewrite conformance/goldens
	$(VENVS)/goldens/bin/python scripts/make_goldens.py
	$(VENVS)/goldens/bin/python scripts/make_case_goldens.py

mutants: ## plant faults in the kernels, one at a time, and count those that the conformance cases notice
	$(PYTHON) scripts/mutants.py

fuzz: ## run the coverage-guided fuzz targets, SECONDS (default 160) in total; needs cargo-fuzz
	@CARGO="$(CARGO)" sh scripts/fuzz.sh $(or $(SECONDS),160)

miri: ## interpret the unsafe code of core and of the portable kernels; needs Miri
	@CARGO="$(CARGO)" sh scripts/sanitize.sh miri

asan: ## AddressSanitizer over SIMD kernels, tables of plugins and the bridge to LiteRT
	@CARGO="$(CARGO)" sh scripts/sanitize.sh asan

coverage: ## how many lines of each crate the tests of miri and asan, and mutants of models, execute; needs llvm-tools
	@CARGO="$(CARGO)" PYTHON="$(PYTHON)" sh scripts/sanitize.sh coverage

digits: $(VENVS)/train/ready ## train the embedded digit classifier again: assets/digits
	$(VENVS)/train/bin/python scripts/train_digits.py

clean: ## remove target/; the cache of models stays
	$(CARGO) clean

# A virtual environment with exactly the versions that a script was written for.
$(VENVS)/%/ready: scripts/requirements-%.txt
	$(PYTHON) -m venv --clear $(VENVS)/$*
	$(VENVS)/$*/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 -r $<
	@touch $@
