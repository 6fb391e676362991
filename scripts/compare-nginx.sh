#!/usr/bin/env bash
# compare-nginx.sh [FOLDER…]: compares the CPU per request of published pages with nginx and gzip_static, in one interleaved run.
# Fails if a compressed page costs more than RATIO_MAX (1.5) times its cost in nginx; RATIO_MAX=0 only reports. Needs nginx
# (Debian: nginx-light), wrk, curl, pgrep (procps) and a release build, or another binary in POLYNYA_BIN; `make` does not build
# it. SECONDS_EACH, ROUNDS, PAGES and CONNECTIONS set the length of the run.
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

polynya=${POLYNYA_BIN:-$(target_dir)/release/polynya}
ratio_max=${RATIO_MAX:-1.5}
seconds=${SECONDS_EACH:-5}
connections=${CONNECTIONS:-16}
rounds=${ROUNDS:-3}
pages=${PAGES:-60}
PATH=$PATH:/usr/sbin
for tool in nginx wrk curl pgrep; do
    have "$tool" || fail "$tool is missing (Debian: apt-get install nginx-light wrk curl procps)"
done
[ -x "$polynya" ] || fail "there is no program at $polynya; build it (cargo build --release -p polynya-app), or name one in POLYNYA_BIN"

folders=("$@")
[ ${#folders[@]} -gt 0 ] || folders=(docs)
for at in "${!folders[@]}"; do folders[at]=$(realpath -e "${folders[at]}"); done
polynya=$(realpath "$polynya")
scratch=$(mktemp -d)
started=()
finish() {
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT

ours=127.0.0.1:${OUR_PORT:-18481}
theirs=127.0.0.1:${THEIR_PORT:-18482}
# An empty configuration and environment keep other settings away.
: >"$scratch/none.toml"
env -i PATH="$PATH" HOME="$HOME" "$polynya" publish --config "$scratch/none.toml" --all "${folders[@]}" \
    --data "$scratch/data" --listen "$ours" --log-level error >"$scratch/polynya.log" 2>&1 &
started+=($!)
polynya_pid=$!
came=no
for _ in $(seq 600); do
    kill -0 "$polynya_pid" 2>/dev/null || fail "polynya ended: $(cat "$scratch/polynya.log")"
    if curl -s "http://$ours/ready" | grep -q '"settled":true'; then came=yes && break; fi
    sleep 0.1
done
[ "$came" = yes ] || fail "the notes were not taken in within a minute: $(cat "$scratch/polynya.log")"
# Waits until the number of pages no longer grows.
before=-1
while now=$(curl -s "http://$ours/metrics" | awk '/^polynya_site_pages /{print $2}'); [ "${now:-none}" != "$before" ]; do
    before=${now:-none}
    sleep 2
done

# Takes the largest notes: they are real pages, none of them tiny.
curl -s "http://$ours/all-notes" | grep -oE 'href="/[^"]*[^"/]"' | sed -E 's/href="(.*)"/\1/' | grep -vE '/$|%' | sort -u >"$scratch/candidates" || true
sed -E "s|(.*)|url = \"http://$ours\1\"\noutput = /dev/null|" "$scratch/candidates" |
    curl -s -K - -w '%{size_download} %{url_effective}\n' | sort -rn |
    awk -v pages="$pages" -v base="http://$ours" '$1 < 200000 && n++ < pages { print substr($2, length(base) + 1) }' >"$scratch/largest"
mkdir -p "$scratch/www"
plain=0 packed=0
while read -r url; do
    file="$scratch/www$url"
    # A page may have the name of a folder that other pages need.
    if [ -d "$file" ] || ! mkdir -p "$(dirname "$file")" 2>/dev/null; then continue; fi
    curl -s "http://$ours$url" -o "$file"
    curl -s -H 'Accept-Encoding: gzip' "http://$ours$url" -o "$file.gz"
    touch -r "$file" "$file.gz"
    plain=$((plain + $(wc -c <"$file"))) packed=$((packed + $(wc -c <"$file.gz")))
    printf '%s\n' "$url" >>"$scratch/urls"
done <"$scratch/largest"
[ -s "$scratch/urls" ] || fail "no pages found; see all-notes of the site"
count=$(wc -l <"$scratch/urls")

cat >"$scratch/nginx.conf" <<CONF
daemon off;
worker_processes auto;
pid $scratch/nginx.pid;
error_log $scratch/error.log;
events { worker_connections 1024; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    open_file_cache max=10000 inactive=1h;
    open_file_cache_valid 1h;
    types { }
    default_type "text/html; charset=utf-8";
    server {
        listen $theirs;
        root $scratch/www;
        gzip_static on;
        gzip_vary on;
    }
}
CONF
chmod 755 "$scratch"
nginx -c "$scratch/nginx.conf" -p "$scratch" >"$scratch/nginx.log" 2>&1 &
started+=($!)
nginx_pid=$!
# Both must answer the same bytes before anything is compared.
first=$(head -1 "$scratch/urls")
for _ in $(seq 100); do
    curl -s -H 'Accept-Encoding: gzip' "http://$theirs$first" -o "$scratch/first" && break
    sleep 0.1
done
cmp -s "$scratch/first" "$scratch/www$first.gz" || fail "nginx does not answer the same: $(cat "$scratch/nginx.log" "$scratch/error.log")"

cat >"$scratch/wrk.lua" <<LUA
local requests, at = {}, 0
function init(args)
  wrk.headers["Accept-Encoding"] = os.getenv("ENCODING")
  for url in io.lines("$scratch/urls") do requests[#requests + 1] = wrk.format("GET", url) end
end
function request() at = at % #requests + 1; return requests[at] end
function done(summary, latency)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d\n", summary.requests, summary.bytes, e.connect + e.read + e.write + e.status + e.timeout))
end
LUA

# CPU ticks of a process and its children, user and system.
ticks() {
    local total=0 pid
    for pid in "$1" $(pgrep -P "$1" || true); do
        total=$((total + $(sed -E 's/^.*\) //' "/proc/$pid/stat" | awk '{ print $12 + $13 }')))
    done
    printf '%s' "$total"
}

hertz=$(getconf CLK_TCK)
declare -A requests=() cpu=()
measure() { # name pid address encoding
    local before after result
    before=$(ticks "$2")
    result=$(ENCODING=$4 wrk -t1 -c"$connections" -d"${seconds}s" -s "$scratch/wrk.lua" "http://$3/" | grep RESULT)
    after=$(ticks "$2")
    read -r _ n bytes errors <<<"$result"
    [ "$errors" = 0 ] || fail "$1: $errors errors"
    requests[$1 $4]=$((${requests[$1 $4]:-0} + n))
    cpu[$1 $4]=$((${cpu[$1 $4]:-0} + after - before))
    awk -v name="$1" -v enc="$4" -v n="$n" -v t=$((after - before)) -v hz="$hertz" -v s="$seconds" -v b="$bytes" \
        'BEGIN { printf "%-8s %-9s %8.0f requests/s %7.2f us CPU a request %8.0f bytes an answer\n", name, enc, n / s, t / hz / n * 1e6, b / n }'
}

say "$count pages, on average $((plain / count)) bytes, $((packed / count)) with gzip; $connections connections, $seconds s each, wrk on the same machine"
for encoding in gzip identity; do
    # Warms both servers up.
    ENCODING=$encoding wrk -t1 -c"$connections" -d1s -s "$scratch/wrk.lua" "http://$ours/" >/dev/null
    ENCODING=$encoding wrk -t1 -c"$connections" -d1s -s "$scratch/wrk.lua" "http://$theirs/" >/dev/null
    for _ in $(seq "$rounds"); do
        measure polynya "$polynya_pid" "$ours" "$encoding"
        measure nginx "$nginx_pid" "$theirs" "$encoding"
        measure nginx "$nginx_pid" "$theirs" "$encoding"
        measure polynya "$polynya_pid" "$ours" "$encoding"
    done
done
missed=
for encoding in gzip identity; do
    ratio=$(awk -v hz="$hertz" -v pr="${requests[polynya $encoding]}" -v pc="${cpu[polynya $encoding]}" \
        -v nr="${requests[nginx $encoding]}" -v nc="${cpu[nginx $encoding]}" \
        'BEGIN { p = pc / hz / pr * 1e6; n = nc / hz / nr * 1e6; printf "%.2f %.2f %.2f", p, n, p / n }')
    read -r p n times <<<"$ratio"
    say "$encoding: polynya $p us, nginx $n us CPU a request: $times times"
    if [ "$encoding" = gzip ] && awk -v is="$times" -v max="$ratio_max" 'BEGIN { exit !(max > 0 && is > max) }'; then missed=$times; fi
done
[ -z "$missed" ] || fail "a compressed page costs $missed times what it costs nginx; at most $ratio_max is promised"
