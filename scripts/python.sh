#!/usr/bin/env bash
# Builds the Python package in the dev profile, installs it beside libraries that read Arrow, and runs tests/python. Its virtual
# environment is outside the clone. Arguments go to unittest: `scripts/python.sh test_arrow`.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

python_environment python 10 tests/python/requirements.txt
need_rust
need_c
target=$(target_dir)
need_disk 4 "$target" "building the Python package"
rm -rf "$target/wheels-dev"
# The profile and features are those of the other builds, so that their artifacts are used again.
"$environment/bin/maturin" build --quiet --profile dev --locked --manifest-path crates/python/Cargo.toml \
    --interpreter "$environment/bin/python" --compatibility linux --out "$target/wheels-dev" >&2
"$environment/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps --no-index "$target"/wheels-dev/polynya-*.whl >&2
cd tests/python
exec "$environment/bin/python" -W error -X faulthandler -m unittest "${@:-discover}"
