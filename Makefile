# Every target sets up what it needs: on a fresh machine `make demo` or `make test` is all there is to type.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
STAMP := .venv/.stamp
TYPING := .typing/slipstick

.DEFAULT_GOAL := help
# What constants of kernels are fitted to, where they go, and the devices that a joint fit must do without in turn.
SINGLE := $(foreach table,gemm attention,--from tests/validation/$(table).csv)
TABLES := $(SINGLE) $(foreach table,elementwise collectives moe,--from tests/validation/$(table).csv)
CALIBRATE := $(BIN)/slipstick calibrate
UNSEEN := a40-server dgx-a100-80gb dgx-b200 dgx-h100 l40s-server
# Kernels of AMD's libraries are other kernels: one chip of theirs tells nothing of NVIDIA's.
JOINT := --joint --leave-out mi210-server

# Every table of measurements, and what the package says of how near it comes to them.
# Whole runs as command lines judge plans and software as well: no kernel is trusted by them.
MEASURED := $(filter-out $(patsubst %,tests/validation/%.csv,bills pipeweave power runs),$(wildcard tests/validation/*.csv))
ACCURACY := backends/calibration/accuracy.csv
# Tables whose predictions over measurements are pictures of the pages.
PICTURED := attention collectives elementwise gemm inference_latency layer_time memory moe training_step

# Writes the list of what is installed.
CYCLONEDX := 7.5.0
# Resolves and hashes the pins.
UV := 0.13.9

# Pictures that examples/README.md shows, and tables that its sentences follow from.
PICTURES := $(patsubst examples/pictures/%,results/%,$(wildcard examples/pictures/*.svg))
TABLES := $(patsubst examples/%.py,results/%.csv,$(shell grep -l 'def conclude' examples/ex*.py))

# What `make bench-compare` measures: minutes, where `make bench` takes half an hour.
RELEASED_CASES := $(foreach case,help cached single plans lowering,--only $(case))

# Parts of `make laws`, each of 25,000 plans.
SEEDS := 1 2 3 4 5 6 7 8

# What `make check` runs, and options of pytest for `make test`.
CHECKS := check-lint check-format check-mypy check-pyright check-floors
PYTEST ?=

# The tests start hundreds of processes: without compiled modules each would compile the whole package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: bench bench-compare calibration check clean coverage demo docs engines errors fuzz grid help laws lock mutants oracles release robustness sbom setup stacks studies test thorough validation $(CHECKS)

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: $(STAMP)  ## estimate a training step of Llama 3.1 8B on one DGX H100
	$(BIN)/slipstick estimate llama-3.1-8b --system dgx-h100 --gpus 8 --tp 2 --zero 1 --recompute selective --seq 8192 --gbs 64 --stack megatron-core

# Each worker starts on one half of the tests, file after file, and takes over from the other when it has done its own.
test: $(STAMP)  ## run the whole test suite
	$(BIN)/pytest -n 2 --dist worksteal $(PYTEST)

# Side by side, since each type checker keeps one core busy; what each prints comes in one piece.
docs: $(STAMP)  ## build the site and the man pages: results/site; warnings are errors
	$(BIN)/python docs/site/build.py results/site

thorough: $(STAMP)  ## run what `make test` and `make check` leave out too: all examples of laws, deep cases, types of tests
	$(BIN)/pytest -n 2 --dist worksteal --deep $(PYTEST)
	$(BIN)/pyright tests

check: $(STAMP)  ## lint, format, types, floors
	@$(MAKE) --no-print-directory --jobs --keep-going --output-sync $(CHECKS)

check-lint:
	$(BIN)/ruff check .

check-format:
	$(BIN)/ruff format --check .

check-mypy:
	$(BIN)/mypy

check-pyright:
	$(BIN)/pyright

check-floors:
	$(BIN)/lint-imports

bench: $(STAMP)  ## measure slipstick itself
	$(BIN)/python -m benchmarks

bench-compare: $(STAMP)  ## measure what the last release was measured by, and fail where something got slower
	mkdir -p results
	$(BIN)/python -m benchmarks $(RELEASED_CASES) > results/bench.json
	$(BIN)/python -m benchmarks.compare benchmarks/released.json results/bench.json

calibration: $(STAMP)  ## fit constants of kernels anew: for any chip, without one device in turn, and chip by chip
	$(CALIBRATE) $(TABLES) $(JOINT) -o backends/calibration/joint.yaml
	$(foreach one,$(UNSEEN),$(CALIBRATE) $(SINGLE) $(JOINT) --leave-out $(one) -o tests/validation/unseen/$(one).yaml &&) true
	$(CALIBRATE) $(TABLES) -o backends/calibration

stacks: $(STAMP)  ## fit what stack profiles leave free anew, to measured training steps
	$(CALIBRATE) --from tests/validation/training_step.csv --stack all -o backends/stack_fits

engines: $(STAMP)  ## fit what engine profiles leave free anew, to served requests
	$(CALIBRATE) --from tests/validation/inference_latency.csv --engine all -o backends/engine_fits

validation: $(STAMP)  ## judge again against measurements: docs/validation.md, and what estimates say of themselves
	$(BIN)/slipstick validate --quiet $(MEASURED) --accuracy $(ACCURACY) > /dev/null
	$(foreach table,$(PICTURED),$(BIN)/slipstick validate -q tests/validation/$(table).csv -o docs/validation_$(table).svg &&) true
	$(BIN)/pytest tests/docs --update-docs -k validation

errors: $(STAMP)  ## judge again what bands around answers rest on: backends/calibration/{errors,evidence}.csv (ten minutes)
	$(BIN)/python -m benchmarks.errors

coverage: $(STAMP)  ## trace and count models of transformers, foreign packages and ONNX: docs/coverage*.md (hours)
	$(BIN)/python -m benchmarks.coverage.all

mutants: $(STAMP)  ## put 300 small faults into the product and see which no test notices: docs/mutants.md (half an hour)
	$(BIN)/python -m benchmarks.mutants --page docs/mutants.md

grid: $(STAMP)  ## 90,816 estimates by this code and by what AGAINST holds (made so by `--write`): what is refused now, what moved
	$(BIN)/python -m benchmarks.grid $(if $(AGAINST),--compare $(AGAINST),--write results/grid.json.gz)

fuzz: $(STAMP)  ## 100,000 hostile files of every format: what is refused, what is priced, what is a fault (an hour, or FUZZ_SECONDS=60)
	$(BIN)/python -m benchmarks.fuzz --total 100000 --seconds $(or $(FUZZ_SECONDS),3600) --keep results/fuzz
	$(BIN)/python -m benchmarks.robustness --page docs/robustness.md

robustness: $(STAMP)  ## kill searches, workers and machines, damage ledgers, besiege the slide rule: docs/robustness.md (half an hour)
	$(BIN)/python -m benchmarks.robustness
	$(BIN)/python -m benchmarks.robustness --page docs/robustness.md

laws: $(STAMP)  ## try laws of answers on 200,000 random plans: docs/laws.md (half an hour)
	mkdir -p results
	$(foreach seed,$(SEEDS),$(BIN)/python -m benchmarks.laws --plans 25000 --seed $(seed) --keep results/laws-$(seed).json > /dev/null &&) true
	$(BIN)/python -m benchmarks.laws --of $(foreach seed,$(SEEDS),results/laws-$(seed).json) --page docs/laws.md

oracles: $(STAMP)  ## compare every causal language model with DTensor, transformers' plan and FSDP2: results/oracles.md
	$(BIN)/python -m benchmarks.oracles

studies: $(STAMP)  ## run the studies on their full grids: tables and pictures in results, what they conclude in examples
	$(foreach script,$(wildcard examples/ex*.py),$(BIN)/python $(script) --full --output results &&) true
	cp $(PICTURES) examples/pictures
	cp $(TABLES) examples/tables
	$(BIN)/python examples/conclusions.py

# The tool lives apart: what it needs is no part of what it lists.
sbom: $(STAMP)  ## list what is installed, with versions and licences: results/sbom.cdx.json (CycloneDX)
	mkdir -p results build
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==$(CYCLONEDX)
	build/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON -o results/sbom.cdx.json $(BIN)/python

release: sbom  ## build the wheel and the archive of the last commit twice, and keep them where the bytes agree: dist
	$(BIN)/python -m benchmarks.release dist --sbom results/sbom.cdx.json

# PyTorch's build for CPUs is on an index of its own: TORCH_WHEEL is the file that was fetched from there.
lock:  ## hash every pin of constraints.txt for CPython 3.11 on Linux: requirements.lock (needs TORCH_WHEEL=FILE)
	test -f "$(TORCH_WHEEL)"
	mkdir -p build
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV)
	grep -v '^torch==' constraints.txt | build/lock/bin/uv --quiet pip compile - --no-deps --generate-hashes --no-header \
	  --no-annotate --python-version 3.11.9 --python-platform x86_64-unknown-linux-gnu --output-file requirements.lock
	$(BIN)/python -m pip hash "$(TORCH_WHEEL)" | sed -n 's/^--hash/$(shell grep ^torch== constraints.txt)+cpu &/p' >> requirements.lock

setup: $(STAMP)  ## make the environment and nothing else

# torch goes first and by itself: asked for as plain 2.13.0, it comes as the CPU build wherever one is offered.
$(STAMP): pyproject.toml constraints.txt | $(TYPING)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[hf,calibrate,docs,plot,ray,report,results,search,dev]'
	touch $@

# Type checkers cannot follow the import hook of an editable install; they follow this link.
$(TYPING):
	mkdir -p $(@D)
	ln -s .. $@

clean:  ## remove builds and caches, keep the environment
	rm -rf build dist *.egg-info .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name .venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
