#!/usr/bin/env bash
# Installs what the browser tests need: Chromium, Node, playwright-core. Prints `ready` and the path of Chromium, or the missing
# part.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

missing() {
    [ -z "${CI:-}" ] || fail "$1, and in CI nothing is skipped"
    say "$1"
    exit 0
}

chromium_path() {
    if [ -n "${CHROMIUM:-}" ]; then
        command -v "$CHROMIUM"
    else
        command -v chromium || command -v chromium-browser || command -v google-chrome
    fi
}
find_node() { have node && have npm; }

packages=()
chromium_path >/dev/null || packages+=(chromium)
find_node || packages+=(nodejs npm)
if [ ${#packages[@]} -gt 0 ] && can_install; then
    apt_install "${packages[@]}" >&2 || say "apt-get could not install ${packages[*]}" >&2
fi
chromium_path >/dev/null || missing "Chromium is not installed (Debian: apt-get install chromium)"
find_node || missing "Node and npm are not installed (Debian: apt-get install nodejs npm)"
if [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ]; then
    missing "Node $(node --version) is too old, 20 is needed"
fi
cd tests/browser
if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
    npm ci --no-audit --no-fund --silent >&2 || missing "npm could not install what tests/browser/package-lock.json names"
    touch node_modules/.package-lock.json
fi
say "ready $(chromium_path)"
