# Two commands on a fresh machine (Python 3.11, g++, cmake, make): `make demo` and `make test`.
# Everything they install goes into .venv; `make clean` takes it away again.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Workers of the tests: one more than two cores, for some tests wait for parties that wait.
JOBS ?= 3

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# The install is a plain one, which copies the sources (mypy and the tests then see what users get),
# so any change to them calls for another; it compiles again only the native code that changed.
# Folders are listed with their files: a file that was removed shows in its folder's date alone.
FOLDERS := python frontend ir passes targets kernels runtime
SOURCES := pyproject.toml CMakeLists.txt \
	$(shell find $(FOLDERS) \( -name '.*' -o -name __pycache__ \) -prune -o -print)
BUILD_REQUIRES = import tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])
GPU_REQUIRES = import tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["gpu"])
NATIVE = find ir kernels passes runtime \( -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -exec

.PHONY: help demo test test-all test-gpu sanitize sanitize-gpu lint format clean
.DELETE_ON_ERROR:

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/installed ## classify handwritten digits among three processes
	$(BIN)/veilgraph demo

test: $(VENV)/installed ## run the tests, save those marked slow
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "not slow"

test-all: $(VENV)/installed ## run every test
	$(BIN)/pytest -n $(JOBS) --dist worksteal

test-gpu: $(VENV)/installed ## run the tests that need a GPU, with CUDA's compiler
	@$(PIP) install --quiet $$($(BIN)/python -c '$(GPU_REQUIRES)')
	$(BIN)/pytest -m gpu

sanitize-gpu: $(VENV)/installed ## run the kernels' tests on a GPU under compute-sanitizer
	@$(PIP) install --quiet $$($(BIN)/python -c '$(GPU_REQUIRES)')
	for tool in memcheck racecheck; do \
		compute-sanitizer --tool $$tool --target-processes all --error-exitcode 1 \
			$(BIN)/python -m pytest -m gpu tests/kernels || exit 1; \
	done

# Input that strangers may send, read by native code that AddressSanitizer and UBSan watch. Of about
# CASES cases of all kinds, a third concerns native code and is run: `make sanitize CASES=1000`.
CASES ?= 1000000
SANITIZED := build/sanitized
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1
sanitize: $(VENV)/installed ## damage input for native code built with sanitizers
	@$(PIP) install --quiet --no-deps --no-build-isolation --upgrade --target $(SANITIZED)/site \
		--config-settings=build-dir=$(SANITIZED)/build \
		"--config-settings=cmake.define.CMAKE_CXX_FLAGS=$(SANITIZE)" .
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$(SANITIZED)/site \
		$(BIN)/python -m benchmarks.serving.hostile_input --cases $(CASES) \
			--only program file tables frames handshake

lint: $(VENV)/installed ## check style and types, change nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p veilgraph
	$(BIN)/mypy --explicit-package-bases examples benchmarks packaging
	$(NATIVE) $(BIN)/clang-format --dry-run --Werror {} +
	@$(BIN)/python tests/docs/sentences.py

format: $(VENV)/installed ## format the sources in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(NATIVE) $(BIN)/clang-format -i {} +

clean: ## remove the environment and everything built
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(FOLDERS) tests examples -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"Veilgraph needs Python 3.11 or newer: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/created $(SOURCES)
	@echo "Installing Veilgraph into $(VENV)"
	@$(PIP) install --quiet $$($(BIN)/python -c '$(BUILD_REQUIRES)')
	@CMAKE_BUILD_PARALLEL_LEVEL=$$(getconf _NPROCESSORS_ONLN) \
		$(PIP) install --quiet --no-build-isolation \
		--config-settings=build-dir=$(VENV)/build ".[compile,torch,test,dev]"
	@touch $@
