# Every target sets up what it needs, by apt and pip, on a fresh Debian 12 (root, or sudo).
PYTHON ?= $(firstword $(wildcard /usr/bin/python3.11) python3)
BIN := .venv/bin
AGENT := $(BIN)/compute-node-agent
UNIT := $(BIN)/python -m pytest -q -n 2 --dist worksteal --hypothesis-seed=1 tests/unit

# A virtual environment knows its own path: after a move of the clone it is made anew.
ifneq ($(filter-out $(CURDIR),$(shell cat .venv/*.stamp 2> /dev/null)),)
$(shell rm -f .venv/*.stamp)
endif

.PHONY: help venv run test check lint unit mutants fuzz soak guest-test bench docs sample simulate service-test nova-driver nova-test cloud-test storage-test picture-test protocol-test distro-test releases-test deb rpm image clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 16

venv: .venv/test.stamp  ## a virtual environment with everything that developing needs

run: .venv/run.stamp  ## the main job on this very host, against a placement of its own in .run/
	@tools/host.sh libvirtd
	@tools/run.sh

test: .venv/test.stamp  ## every feature once on the real thing, about 15 minutes
	@tools/host.sh libvirtd
	@$(BIN)/python tools/test.py

check: lint  ## what lint does, and the unit tests: four minutes on a machine with Python alone
	$(UNIT)

lint: .venv/check.stamp  ## format, lint, types, contracts of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy tests tools/simulator
	$(BIN)/lint-imports

unit: .venv/check.stamp  ## the unit tests, which must reach 95 % of each pure module
	$(UNIT) --cov --cov-report=json:.coverage.json
	$(BIN)/python tools/coverage.py .coverage.json

mutants: .venv/test.stamp  ## small changes of the pure modules that no unit test notices; ten minutes (MUTANTS="--count 20 --seed 1")
	@$(BIN)/python -m tools.mutants $(MUTANTS)

fuzz: .venv/test.stamp  ## changed files and answers for each parser, an hour in all (FUZZ_S=600: seconds)
	@FUZZ_S=$${FUZZ_S:-3600} $(BIN)/python -m pytest -q -s --show-capture=no tests/fuzz

soak: .venv/test.stamp  ## long counts with a new seed, which is printed
	@tools/host.sh libvirtd
	@$(BIN)/python tools/soak.py

guest-test: .venv/test.stamp  ## a whole guest with real SR-IOV cards, mediated devices and systemd; 3 GB in .guest/
	@tests/beds/guest/image.sh .guest
	@$(BIN)/python -m pytest -q -s --durations=5 tests/guest

bench: .venv/test.stamp  ## figures beside nova's, measured in the same run (BENCH_PARTS=8,11: these parts)
	@tools/host.sh libvirtd
	@bench/run.sh

simulate: .venv/test.stamp  ## up to 100,000 hosts on a day, from measured costs; docs/scale.md (SIMULATE=measure: costs anew)
	@tools/host.sh libvirtd
	@tools/venv.sh $(PYTHON) test,simulate
	@PYTHONPATH=tests:tools $(BIN)/python -m simulator $(SIMULATE)

docs: .venv/run.stamp  ## the site in build/site, from docs/; a link to nowhere fails
	@tools/venv.sh $(PYTHON) libvirt,embedded,docs
	@$(BIN)/sphinx-build -q -W -E -a --keep-going -n -b html docs build/site
	@echo "build/site/index.html"

sample: .venv/test.stamp  ## the sample configuration, and the pages that are made from the code
	$(BIN)/oslo-config-generator --config-file etc/compute-node-agent/generator.conf
	PYTHONPATH=. $(BIN)/python tools/verbs.py
	PYTHONPATH=. $(BIN)/python tools/options.py
	$(BIN)/python tools/messages.py --write

service-test: .venv/test.stamp  ## the package under a real systemd in a container
	@tools/host.sh containers
	@$(BIN)/python -m pytest -q --durations=5 tests/service

nova-driver: .venv/run.stamp  ## the wheel nova-compute-node-agent in dist/: our driver inside nova-compute
	@$(BIN)/python tools/nova_driver.py dist

nova-test: .venv/run.stamp  ## that driver with nova's own code and tests; ten minutes
	@tools/nova_test.sh

cloud-test: .venv/test.stamp  ## beside nova-compute, in a whole nova cloud on this machine; 4 GB of memory
	@tools/host.sh libvirtd
	@tools/host.sh cloud
	@tools/cloud.sh
	@$(BIN)/python -m pytest -q -s --durations=5 tests/cloud

storage-test: .venv/test.stamp  ## disks of guests in a real Ceph cluster and on LVM, beside what nova counts; two minutes
	@tools/host.sh libvirtd
	@tools/host.sh storage
	@tools/storage.sh
	@$(BIN)/python -m pytest -q -s --durations=5 tests/storage

picture-test: .venv/test.stamp  ## four pictures in a browser, printed, and looked at by axe-core; kept in build/pictures
	@tools/host.sh libvirtd
	@tools/host.sh browser
	@tools/venv.sh $(PYTHON) test,browser
	@$(BIN)/python -m pytest -q -s tests/pictures

fleet-test: .venv/test.stamp  ## the collection in ansible/: its own checks, hosts that break, forty hosts there and back; 50 minutes
	@tools/fleet.sh
	@tools/host.sh libvirtd
	@$(BIN)/python -m pytest -q -s --durations=5 tests/fleet

protocol-test: .venv/test.stamp  ## a conversion as a model for SPIN, in all interleavings, and the real client's steps in it
	@tools/host.sh libvirtd
	@tools/host.sh checker
	@$(BIN)/python -m pytest -q -s --durations=5 tests/protocol

distro-test: .venv/test.stamp  ## the packages, and the tests, on Debian 12, 13 and unstable; their roots in .distro/
	@tools/host.sh libvirtd
	@tools/host.sh roots
	@tools/host.sh rpm
	@tools/distro.sh bookworm trixie sid
	@$(BIN)/python -m pytest -q -s --durations=5 tests/distro

releases-test: .venv/test.stamp  ## tests on older placement, Keystone, Ironic, nova (RELEASES="2024.1" SERVICES="nova": these); in .releases/
	@tools/host.sh libvirtd
	@tools/host.sh cloud
	@$(BIN)/python tools/releases.py

deb: .venv/run.stamp  ## a Debian package in build/, with the service
	@tools/deb.sh $(PYTHON)

rpm: .venv/run.stamp  ## an rpm of the same files in build/, for Rocky and RHEL with this Python
	@tools/host.sh rpm
	@tools/rpm.sh $(PYTHON)

image: deb  ## a container image of that package in build/, see etc/containers and etc/kubernetes
	@tools/host.sh roots
	@tools/image.sh "$$(ls -t build/compute-node-agent_*.deb | head -n 1)"

clean:  ## what the other targets made, but for the embedded placement's .run/
	rm -rf .venv .ironic .bench .guest .distro .releases build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache .coverage .coverage.json
	find agent drivers reportclient tests tools -name __pycache__ -prune -exec rm -rf {} +

.venv/check.stamp: setup.py
	@$(PYTHON) -c "import ensurepip" 2> /dev/null || tools/host.sh venv
	@tools/venv.sh $(PYTHON) check
	@echo "$(CURDIR)" > $@

.venv/run.stamp: setup.py tools/host.sh
	@tools/host.sh packages
	@tools/venv.sh $(PYTHON) libvirt,embedded
	@echo "$(CURDIR)" > $@

.venv/test.stamp: setup.py tools/host.sh tools/ironic.sh
	@tools/host.sh packages
	@tools/host.sh databases
	@tools/host.sh manual
	@tools/host.sh logins
	@tools/venv.sh $(PYTHON) test
	@tools/ironic.sh $(PYTHON)
	@echo "$(CURDIR)" | tee .venv/run.stamp .venv/check.stamp > $@
