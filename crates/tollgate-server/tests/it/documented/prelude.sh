# Runs before the commands of a page. Servers, which a reader starts in another terminal, run in the background; the next command waits
# until they answer.
set -euo pipefail
page=$PWD

start() {
  local log=$page/$1.log; shift
  command "$@" >>"$log" 2>&1 </dev/null &
  started=$!
  echo "$started" >>"$page/.started"
}

# Waits until a port answers, or a file contains a word.
wait_for() {
  for _ in $(seq 1200); do
    if [ $# -eq 1 ]; then (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0; else grep -q "$2" "$1" && return 0; fi
    kill -0 "$started" 2>/dev/null || { echo "it ended: ${*}" >&2; cat "$page"/*.log >&2; return 1; }
    sleep 0.05
  done
  echo "timed out waiting for $*" >&2
  return 1
}

tollgate() {
  if [ "${1:-}" != serve ]; then command tollgate "$@"; return; fi
  served=$((${served:-0} + 1))
  start "tollgate-$served" tollgate "$@"
  wait_for "$page/tollgate-$served.log" ' ready'
}

redis-server() {
  local port=6379 args=()
  while [ $# -gt 0 ]; do
    case $1 in
      --daemonize) shift ;;
      --port) port=$2; args+=("$1" "$2"); shift ;;
      *) args+=("$1") ;;
    esac
    shift
  done
  start "redis-$port" redis-server "${args[@]}"
  wait_for "$port"
}

python3() {
  if [ "${1:-} ${2:-}" != "-m http.server" ]; then command python3 "$@"; return; fi
  start api python3 "$@"
  wait_for "$3"
}

nginx() { start nginx nginx "$@"; wait_for "$FRONT"; }
caddy() { start caddy caddy "$@"; wait_for "$FRONT"; }
# Without what would need memory of a fixed name, which other tests use as well.
envoy() { start envoy envoy "$@" --disable-hot-restart --concurrency 1 --log-level warn; wait_for "$FRONT"; }

end() {
  [ ! -f "$page/.started" ] || while read -r process; do kill "$process" 2>/dev/null || true; done <"$page/.started"
}
trap end EXIT
