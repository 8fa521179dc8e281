# Everything here needs Rust, a C compiler and git; some tests use more, and say so when they skip.

CARGO ?= cargo
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man/man1
DATADIR ?= $(PREFIX)/share
UNITDIR ?= $(PREFIX)/lib/systemd/user
# The most that the random edits of `make soak` may take. With TMPDIR on a tmpfs they need far less than on a disk.
SOAK_SECONDS ?= 7200
TARGET ?= $(or $(CARGO_TARGET_DIR),target)

.PHONY: build release demo test lint bench soak soak-months soak-service fuzz bench-store test-agents install uninstall

build:
	$(CARGO) build --workspace --locked

# The client is waited for at every prompt and hook: linked statically it starts in two thirds of the time. Where there
# is no static C library, it is linked as usual.
release:
	$(CARGO) build --release --workspace --exclude stepback-client --locked
	test "$$(uname)" = Linux && $(CARGO) rustc --release --locked -p stepback-client --bin stepback -- \
		-C target-feature=+crt-static || $(CARGO) build --release --locked -p stepback-client

# The main job, played in a scratch copy of this source tree.
demo: release
	tests/demo.sh $(TARGET)/release

# The end-to-end tests run both programs, which must be built before.
# Then the same engine with points at which it fails or dies, each in turn.
test: build
	$(CARGO) test --workspace --locked
	$(CARGO) test --locked -p stepback-engine --features fault-points --lib --test it faults
	$(CARGO) build --locked -p stepbackd --features fault-points
	$(CARGO) test --locked -p stepback-tests --test it panics::
	$(CARGO) build --locked -p stepbackd

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# Both programs and their peers side by side; writes BENCHMARKS.md. QUICK=1: a tenth. BIG=1: also 1,000,000 files.
bench: release
	mkdir -p $(TARGET)/bench
	TMPDIR="$(abspath $(TARGET))/bench" STEPBACK_BIN_DIR="$(abspath $(TARGET))/release" \
		$(CARGO) run --release --locked -q -p stepback-bench

# Many rounds of what `make test` does a few of.
soak: build
	STEPBACK_ROUNDS=200 STEPBACK_SECONDS=30 $(CARGO) test --locked -p stepback-tests --test it -- --nocapture \
		kill:: many_clients:: cases_repos::b28 prune:: maintenance::
	STEPBACK_ROUNDS=1000 $(CARGO) test --locked -p stepback-tests --test it -- --nocapture hostile::
	STEPBACK_FAULT_EVERY=1 $(CARGO) test --locked -p stepback-engine --features fault-points --lib --test it faults \
		-- --nocapture
	PROPTEST_CASES=10000 STEPBACK_SOAK_CASES=10000 timeout $(SOAK_SECONDS) \
		$(CARGO) test --release --locked -p stepback-engine --lib --test it property
	STEPBACK_SCALE=full $(CARGO) test --release --locked -p stepback-engine --test it -- --nocapture \
		year:: maintenance:: growth::
	STEPBACK_TALK_MIB=500 $(CARGO) test --locked -p stepback-tests --test it -- --nocapture talk::a_long

# Quotas, 10,000 checkpoints and 20,000 files at full size, with the programs of a release: some minutes, 5 GB of disk.
soak-months: release
	STEPBACK_SCALE=full STEPBACK_BIN_DIR="$(abspath $(TARGET))/release" $(CARGO) test --locked -p stepback-tests --test it \
		-- --nocapture --test-threads=1 ten_thousand:: quota:: maintenance::what_a_killed

# Ten million hostile frames.
fuzz:
	STEPBACK_EXECUTIONS=10000000 $(CARGO) test --release --locked -p stepback-proto --features tokio --test fuzz -- \
		--nocapture

# Months of service in minutes: the daemon is killed and stopped among writers and clients. Then what `make test` does
# small, in full: a huge root, many roots, an idle daemon, clients that don't read.
soak-service: build
	STEPBACK_ROOTS=30 STEPBACK_CLIENTS=20 STEPBACK_SECONDS=$(or $(STEPBACK_SECONDS),600) \
		$(CARGO) test --locked -p stepback-tests --test it -- --nocapture soak_service::
	STEPBACK_ROOTS=300 STEPBACK_FILES=500000 STEPBACK_MIB=1024 $(CARGO) test --locked -p stepback-tests --test it -- \
		--nocapture --test-threads=1 isolation:: watching:: back_pressure::
	STEPBACK_FILES=10000 STEPBACK_SECONDS=60 $(CARGO) test --locked -p stepback-tests --test it -- --nocapture idle::

# Bytes for each checkpoint on real histories, beside git. Asks the registry for published versions of two crates.
bench-store: release
	tests/bench_store.sh $(TARGET)/release

# Real agents from npm and PyPI against a model on loopback: two turns, the second taken back, and on they go. Needs
# Python, Node.js and npm; AGENTS names some of them.
test-agents: build
	python3 tests/agents/run.py --bin $(TARGET)/debug --cache $(TARGET)/agents $(AGENTS)

# Doesn't build: `make release` first, so that nothing is compiled as root.
install:
	install -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(MANDIR)
	install -m 755 $(TARGET)/release/stepback $(TARGET)/release/stepbackd $(DESTDIR)$(BINDIR)
	$(TARGET)/release/stepback man $(DESTDIR)$(MANDIR)
	install -d $(DESTDIR)$(DATADIR)/bash-completion/completions $(DESTDIR)$(DATADIR)/zsh/site-functions \
		$(DESTDIR)$(DATADIR)/fish/vendor_completions.d
	$(TARGET)/release/stepback completions bash > $(DESTDIR)$(DATADIR)/bash-completion/completions/stepback
	$(TARGET)/release/stepback completions zsh > $(DESTDIR)$(DATADIR)/zsh/site-functions/_stepback
	$(TARGET)/release/stepback completions fish > $(DESTDIR)$(DATADIR)/fish/vendor_completions.d/stepback.fish
	if [ "$$(uname)" = Linux ]; then \
		install -d $(DESTDIR)$(UNITDIR); \
		for unit in stepbackd.service stepbackd.socket; do \
			sed 's|@BINDIR@|$(BINDIR)|' systemd/$$unit > $(DESTDIR)$(UNITDIR)/$$unit; \
		done; \
	else \
		install -d $(DESTDIR)$(DATADIR)/stepback; \
		sed 's|@BINDIR@|$(BINDIR)|' launchd/stepbackd.plist > $(DESTDIR)$(DATADIR)/stepback/stepbackd.plist; \
	fi

uninstall:
	rm -f $(DESTDIR)$(BINDIR)/stepback $(DESTDIR)$(BINDIR)/stepbackd $(DESTDIR)$(MANDIR)/stepback.1 \
		$(DESTDIR)$(MANDIR)/stepback-*.1 \
		$(DESTDIR)$(DATADIR)/bash-completion/completions/stepback $(DESTDIR)$(DATADIR)/zsh/site-functions/_stepback \
		$(DESTDIR)$(DATADIR)/fish/vendor_completions.d/stepback.fish \
		$(DESTDIR)$(UNITDIR)/stepbackd.service $(DESTDIR)$(UNITDIR)/stepbackd.socket \
		$(DESTDIR)$(DATADIR)/stepback/stepbackd.plist
