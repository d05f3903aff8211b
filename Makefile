# Every target does its own set-up: a fresh clone needs only Python 3.11-3.14 and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: test demo lowest clean

test: .venv/ready  ## lint, types and tests, as CI runs them
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/basedpyright
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal  # two pools of threads on two cores wait for each other

demo: .venv/ready  ## four minutes on two cores: train, run as physics, compare; demo/report.html
	$(BIN)/lohe demo

# Constraints pin what CI was seen to pass with; the package itself asks for much less (pyproject.toml).
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

# old matplotlib and Triton do with NumPy what it deprecates
lowest: export PYTEST_ADDOPTS = -W "ignore:Conversion of an array with ndim"
lowest:  ## the tests with the oldest versions that pyproject.toml allows; brings torch of its own
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e ".[dev]"
	OMP_NUM_THREADS=1 .venv-lowest/bin/pytest -n auto --dist worksteal

clean:
	rm -rf .venv .venv-lowest demo
