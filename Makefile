# What a person types. Each target is one line here; what does not fit a line is in scripts/.
# CARGO_TARGET_DIR is respected; without it everything built lies in ./target.

.PHONY: help run build test test-full soak fmt fmt-check lint docs-check

help:           ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

run:            ## build, then the demo: live data of this machine at http://127.0.0.1:8484/_/
	@scripts/run.sh $(LISTEN)

build:          ## the binary alone
	@scripts/build.sh

test:           ## every test but the long ones; installs what it needs
	@scripts/test.sh

test-full:      ## those too: thousands of seeds, 20 kills, 10,000,000 rows, big benchmarks (half an hour)
	@scripts/test.sh
	@scripts/test-full.sh

soak:           ## everything that tables do for an hour (POLYNYA_SOAK=10m: shorter): nothing grows, nothing is wrong
	@scripts/soak.sh

fmt:            ## format all code
	cargo fmt --all

fmt-check:      ## fail where code is not formatted
	cargo fmt --all --check

lint:           ## fail on any warning
	cargo clippy --workspace --exclude polynya-compare --exclude polynya-python --all-targets --locked -- -D warnings
	cargo clippy -p polynya --lib --no-default-features --locked -- -D warnings

docs-check:     ## links, repository rules, documentation of the crates
	cargo test --locked -p polynya-repo
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --exclude polynya-compare --exclude polynya-python --no-deps --locked
