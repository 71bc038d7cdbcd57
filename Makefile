# A new user needs two commands: `make demo` and `make test`. Each does its own set-up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTHONS := 3.11 3.12 3.13 # those of the classifiers in pyproject.toml
unexport PYTHONDONTWRITEBYTECODE # otherwise every process of the tests would compile the modules again

.PHONY: demo test kernels kotlin lint fast matrix fuzz verify-image verify-compose verify-cluster services try-services peers lock clean quick generated pictures site

demo: $(VENV)/.runtime            ## the whole pipeline on this machine, in one process
	$(BIN)/ldpstream demo

test:                             ## everything; starts Kafka and Redis for the tests that need them
	$(MAKE) --jobs=4 lint services peers kernels kotlin # at once: services and peers mostly wait for downloads
	$(BIN)/python -m pytest -q -ra -n 4 --dist loadfile --no-loadscope-reorder # the tests of services mostly wait

quick: lint                       ## ruff, types, the contract of GRR and L-GRR, the rooms, and a run from survey to histogram
	$(BIN)/python -m pytest -q -k "GRR or test_house or every_step_is_published" \
	  tests/mechanisms/test_contract.py tests/ldpstream/test_house.py tests/ldpstream/test_demo.py

fast: $(VENV)/.dev                ## the tests that need no service
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder --ignore=tests/services

matrix:                           ## the same tests on every Python version that the project supports; needs uv
	failed=; for version in $(PYTHONS); do \
	  made=$(VENV)/matrix/$$version; \
	  uv venv -q --seed --allow-existing --python $$version $$made && \
	  uv pip install -q --require-hashes --python $$made/bin/python -r requirements-dev.lock && \
	  uv pip install -q --no-deps --python $$made/bin/python -e . && \
	  $$made/bin/python -m lab.peers.environment && \
	  $$made/bin/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder --ignore=tests/services \
	  || failed="$$failed $$version"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

fuzz: $(VENV)/.dev                ## more random lists of faults, damaged envelopes and odd count tables than the tests
	$(BIN)/python -m tests.faults.search --first $(or $(SEED),100000) --lists $(or $(LISTS),10000)
	$(BIN)/python -m tests.fuzz.run envelopes --seed $(or $(SEED),100000) --inputs $(or $(INPUTS),1000000)
	$(BIN)/python -m tests.fuzz.run capsules --seed $(or $(SEED),100000) --inputs $(or $(CAPSULES),20000)
	$(BIN)/python -m tests.fuzz.run tables --seed $(or $(SEED),100000) --inputs $(or $(TABLES),10000)

verify-image verify-compose verify-cluster: $(VENV)/.dev ## images, Compose file, manifests with an engine and a cluster
	PYTHONPATH=src:. $(BIN)/python -P -m tests.deploy.verify.$(@:verify-%=%) $(if $(filter %-cluster,$@),$(FROM))

generated: $(VENV)/.dev           ## renews every generated file (CONTRIBUTING.md has the table)
	$(BIN)/python -m tests.ldpstream.surface
	$(BIN)/python -m tests.ldpstream.rooms
	$(BIN)/python -m tests.docs.reference
	$(BIN)/python -m tests.docs.estimates_schema
	$(BIN)/python -m tests.docs.check_schema
	$(BIN)/python -m devices.vectors
	$(BIN)/python deploy/grafana/dashboards.py
	$(BIN)/python deploy/kubernetes/alerts.py

site: $(VENV)/.dev                ## the documents as a site with search, in build/site/html; a broken link is an error
	$(BIN)/python docs/build_site.py

pictures: $(VENV)/.dev            ## draws every picture anew; needs Chromium and Node
	$(BIN)/python -m docs.draw_pictures
	$(BIN)/python -m docs.take_screenshot
	LDPSTREAM_SCREENSHOTS=docs/pictures $(BIN)/python -m pytest -q tests/devices/test_example.py
	shots=$$(mktemp -d) && LDPSTREAM_SCREENSHOTS=$$shots \
	  $(BIN)/python -m pytest -q tests/publishing/page/test_page_earlier.py tests/publishing/page/test_page_pairs.py \
	  tests/publishing/page/test_page_sets.py && cp $$shots/replaced.png $$shots/pairs.png $$shots/sets.png docs/pictures/

kernels: $(VENV)/.dev             ## compiles the kernels once, before many processes need them at once
	$(BIN)/python -m tests.kernels

kotlin: $(VENV)/.dev services     ## compiles the device in Kotlin once, for the tests
	$(BIN)/python -m tests.devices.kotlin || test -z "$$CI"

lint: $(VENV)/.dev          ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

services:                         ## installs what the service tests need, if it can
	bash deploy/local/setup_services.sh

try-services: $(VENV)/.runtime    ## Kafka and Redis on this machine, until Ctrl-C; prints the commands that use them
	$(BIN)/python -m deploy.local $(SURVEY)

peers: | $(VENV)/bin/python  ## other libraries, which some tests run, in a separate environment in the cache
	PYTHONPATH=src:. $(BIN)/python -P -m lab.peers.environment || test -z "$$CI"

lock:                             ## renews the locked dependencies
	uv pip compile pyproject.toml --extra service --universal --python-version 3.11 --generate-hashes --no-header -o requirements.lock
	uv pip compile pyproject.toml --extra gateway --universal --python-version 3.11 --generate-hashes --no-header -c requirements.lock -o requirements-gateway.lock
	uv pip compile pyproject.toml --extra service --extra dev --extra export --extra plot --universal --python-version 3.11 --generate-hashes --no-header -o requirements-dev.lock
	uv pip compile lab/peers/peers.in --universal --python-version 3.11 --generate-hashes --no-header -o lab/peers/peers.lock

clean:
	rm -rf $(VENV) build *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "Installs the locked packages in $(VENV), once; this can take some minutes."
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps -e .
	touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps -e .
	touch $@
