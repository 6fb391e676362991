#!/usr/bin/env bash
# Builds the Python package in the dev profile, installs it beside libraries that read Arrow, and runs tests/python.
# Its virtual environment lies outside the clone. Arguments go to unittest: `scripts/python.sh test_arrow`.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

missing() {
    [ -z "${CI:-}" ] || fail "$1, and in CI nothing is skipped"
    say "SKIPPED: $1"
    exit 0
}

find_python() { have python3 && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

if ! find_python && can_install; then
    apt_install python3 python3-venv >&2 || say "apt-get could not install python3 and python3-venv" >&2
fi
find_python || missing "Python 3.10 or newer with venv is not installed (Debian: apt-get install python3 python3-venv)"

requirements=tests/python/requirements.txt
# Another list or another Python makes another environment.
state=$(cat "$requirements" <(python3 --version) | cksum | cut -d' ' -f1)
environment=${XDG_CACHE_HOME:-$HOME/.cache}/polynya/python-$state
if [ ! -e "$environment/ready" ]; then
    rm -rf "$environment"
    python3 -m venv "$environment" >&2 || missing "python3 could not make a virtual environment in $environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r "$requirements" >&2 ||
        missing "pip could not install what $requirements names"
    touch "$environment/ready"
fi

need_rust
need_c
target=$(target_dir)
need_disk 4 "$target" "building the Python package"
rm -rf "$target/wheels-dev"
# The same profile and features as everywhere, so that what was built is not built again.
"$environment/bin/maturin" build --quiet --profile dev --locked --manifest-path crates/python/Cargo.toml \
    --interpreter "$environment/bin/python" --compatibility linux --out "$target/wheels-dev" >&2
"$environment/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps --no-index "$target"/wheels-dev/polynya-*.whl >&2
cd tests/python
exec "$environment/bin/python" -W error -X faulthandler -m unittest "${@:-discover}"
