# Sourced by the other scripts: messages to the user, and checks of the machine. Bash.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*"; }
fail() { printf 'polynya: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Runs a command and prints its duration.
phase() {
    local name=$1 start=$SECONDS
    shift
    say "== $name"
    "$@" || fail "$name failed after $((SECONDS - start)) s"
    say "== $name: $((SECONDS - start)) s"
}

# Requires a Rust toolchain that is new enough; fails with one sentence and the remedy.
need_rust() {
    have cargo && have rustc || fail "no Rust toolchain found; install one with rustup (or the packages cargo and rustc, if your system has $(rust_needed) or newer), then run this again"
    local found
    found=$(rustc --version | sed -E 's/^rustc ([0-9]+\.[0-9]+).*/\1/')
    if [ "$(printf '%s\n%s\n' "$(rust_needed)" "$found" | sort -V | head -1)" != "$(rust_needed)" ]; then
        fail "Rust $found is too old, $(rust_needed) is needed; run \`rustup update\`, then this again"
    fi
}

rust_needed() { sed -nE 's/^rust-version = "(.*)"/\1/p' Cargo.toml; }

# Requires a C compiler that links a program, since some dependencies are written in C; fails with one sentence and the remedy.
need_c() {
    local cc=${CC:-cc} scratch
    scratch=$(mktemp -d)
    if ! have "${cc%% *}"; then
        rm -rf "$scratch"
        fail "no C compiler found (looked for \`$cc\`); install one (Debian: apt-get install gcc libc6-dev), then run this again"
    fi
    # shellcheck disable=SC2086 # CC may hold flags
    if ! printf '#include <stdio.h>\nint main(void) { return 0; }\n' | $cc -x c -o "$scratch/probe" - 2>/dev/null; then
        rm -rf "$scratch"
        fail "\`$cc\` cannot build a C program; install the C library's headers (Debian: apt-get install gcc libc6-dev), then run this again"
    fi
    rm -rf "$scratch"
}

# need_disk GIGABYTES DIRECTORY WHAT-FOR
need_disk() {
    local directory=$2 free
    while [ ! -d "$directory" ]; do directory=$(dirname "$directory"); done
    free=$(df -Pk "$directory" | awk 'NR == 2 { print int($4 / 1048576) }')
    [ "$free" -ge "$1" ] || fail "$3 needs $1 GB in $2 and $free GB are free there; make room, or set CARGO_TARGET_DIR to a directory on a larger disk"
}

target_dir() {
    local found
    found=$(cargo metadata --no-deps --format-version 1 --locked | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
    [ -n "$found" ] || fail "cargo does not say where it builds; run \`cargo metadata\` to see why"
    printf '%s\n' "$found"
}

cores() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN; }

# minutes_of CPU-MINUTES SERIAL-MINUTES: the duration of a build here. The CPU minutes were measured with a cold cache
# (docs/development.md); the last crates are built one after the other on any number of cores.
minutes_of() { echo $((($1 + $(cores) - 1) / $(cores) + $2)); }

is_cold() { ! compgen -G "$1/debug/deps/libdatafusion-*.rlib" >/dev/null; }

# Succeeds for root, and for a user who becomes root without a password; no other way is tried.
can_install() { have apt-get && { [ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }; }

apt_install() {
    local become=()
    [ "$(id -u)" = 0 ] || become=(sudo -n)
    say "installing: $*"
    "${become[@]}" apt-get update -qq && DEBIAN_FRONTEND=noninteractive "${become[@]}" apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Skips a test whose requirements are missing, but fails in CI.
missing() {
    [ -z "${CI:-}" ] || fail "$1, and in CI nothing is skipped"
    say "SKIPPED: $1"
    exit 0
}

# python_environment NAME MINOR REQUIREMENTS: makes a virtual environment outside the clone with the packages of that file, of
# Python 3.MINOR or newer. Sets `environment` to its directory. Other requirements or another Python make another environment.
python_environment() {
    local name=$1 minor=$2 requirements=$3 state
    is_new_enough() { have python3 && python3 -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, $minor))" 2>/dev/null; }
    if ! is_new_enough && can_install; then
        apt_install python3 python3-venv >&2 || say "apt-get could not install python3 and python3-venv" >&2
    fi
    is_new_enough || missing "Python 3.$minor or newer with venv is not installed (Debian: apt-get install python3 python3-venv)"
    state=$(cat "$requirements" <(python3 --version) | cksum | cut -d' ' -f1)
    environment=${XDG_CACHE_HOME:-$HOME/.cache}/polynya/$name-$state
    [ ! -e "$environment/ready" ] || return 0
    rm -rf "$environment"
    python3 -m venv "$environment" >&2 || missing "python3 could not make a virtual environment in $environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --prefer-binary -r "$requirements" >&2 ||
        missing "pip could not install what $requirements names"
    touch "$environment/ready"
}

# Sets `bin`, the program to test: POLYNYA_BIN, or one that this builds. Sets `target`, the build directory.
find_polynya() {
    bin=${POLYNYA_BIN:-}
    target=$(target_dir)
    if [ -z "$bin" ]; then
        need_rust
        cargo build --quiet --locked -p polynya-app --bin polynya
        bin=$target/debug/polynya
    fi
}
