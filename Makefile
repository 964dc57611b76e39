# Every target does its own set-up: a virtual environment in .venv, filled once and kept until its inputs change.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup setup-ros demo test test-slow soak golden test-physx test-peer lint format docs bench clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Make the virtual environment with all that the other targets need

# Where Python comes without ensurepip (Debian splits it off), the outer pip fills the new environment.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
		&& $(PYTHON) -m pip --python $(BIN)/python install pip; }

$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt -e '.[torch,video,newton,rerun,usd,viser,ros2,mcap,gym,descriptions,dev]'
	touch $@

# ROS 1 is in no package index. Debian's packages come last in the path, so that they hide none of the environment's.
SYSTEM_PACKAGES := /usr/lib/python3/dist-packages

setup-ros: $(INSTALLED) ## Let the environment see the ROS 1 packages that Debian installed
	$(BIN)/python -c "import pathlib, site; \
		pathlib.Path(site.getsitepackages()[0], 'zz_ros1.pth').write_text('$(SYSTEM_PACKAGES)\n')"
	$(BIN)/python -c 'import rospy, sensor_msgs.msg, tf2_msgs.msg, rosgraph_msgs.msg'

demo: $(INSTALLED) ## Simulate the demo robot and write its camera frames to out/demo
	$(BIN)/scene-data render demo --engine mujoco_batch --num-envs 4 --steps 500 --every 10 --control random \
		--camera front:320x240:rgb,depth,seg --camera track:320x240:rgb,depth,seg --out out/demo

test: $(INSTALLED) ## Run the tests, without those marked slow or soak
	$(BIN)/python -m pytest -m 'not slow and not soak'

test-slow: $(INSTALLED) ## Run the tests marked slow
	$(BIN)/python -m pytest -m slow

soak: $(INSTALLED) ## Run the stress suite for ten minutes
	$(BIN)/python -m pytest -m soak tests/stress

golden: $(INSTALLED) ## Write the golden pictures of the demo scene anew
	$(BIN)/python tests/golden_demo.py

# PhysX is 1.1 GB and wants an older `packaging` than pytest does, so it has an environment of its own.
PHYSX := build/physx-venv

$(PHYSX)/.installed: pyproject.toml constraints.txt
	mkdir -p build
	$(PYTHON) -m venv $(PHYSX) || { $(PYTHON) -m venv --clear --without-pip $(PHYSX) \
		&& $(PYTHON) -m pip --python $(PHYSX)/bin/python install pip; }
	grep -vE '^(packaging|pytest)==' constraints.txt > build/physx-constraints.txt
	$(PHYSX)/bin/python -m pip install -c build/physx-constraints.txt -e '.[physx,newton]' hypothesis pytest scipy
	touch $@

test-physx: $(PHYSX)/.installed ## Install PhysX beside the rest, and test what publishes it
	$(PHYSX)/bin/python -m pytest tests/test_ovphysx_backend.py tests/test_falling_box.py

test-peer: $(INSTALLED) ## Run Isaac Lab's own tests on ours, and the bridges to it and mjlab (downloads both)
	$(BIN)/python tests/peer/isaaclab_tests.py
	$(BIN)/python tests/peer/mjlab_wheel.py
	$(BIN)/python -m pytest tests/test_interop.py tests/test_isaaclab_renderer.py

lint: $(INSTALLED) ## Check style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	rm -rf build/typecheck
	mkdir -p build/typecheck
	cp -rs $(CURDIR)/scene_data build/typecheck
	cp -rs $(CURDIR)/backends $(CURDIR)/renderers $(CURDIR)/visualizers build/typecheck/scene_data
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(INSTALLED) ## Apply the style that `make lint` checks
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(INSTALLED) ## Build the documentation into build/docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs

bench: $(INSTALLED) ## Measure the ratios that the documentation speaks of
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[bench]'
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

clean: ## Remove what the targets made, the virtual environment included
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .hypothesis .ruff_cache .benchmarks
