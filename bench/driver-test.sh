# For the test.sh of a driver, in the driver's folder: a redis-server, and checks
# of the driver's answers and errors. Needs redis-server and python3.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no >/dev/null &
server=$!
trap 'kill $server 2>/dev/null' EXIT
until redis-cli -p "$port" ping >/dev/null 2>&1; do
	kill -0 $server # or fail here
	sleep 0.1
done

# driver contestant limit workers hold-us [port]
driver() {
	timeout 30 ./driver.sh --url "redis://127.0.0.1:${5:-$port}" --contestant "$1" --name "$1-$2-$3-$4" \
		--limit "$2" --workers "$3" --hold-us "$4" --lease-ms 10000
}

# Two rounds, one of them after a pause; then the input just ends.
works() {
	echo "$*"
	{ echo '{"run_ms":200}'; sleep 0.5; echo '{"run_ms":200}'; } | { driver "$@" || echo "exit $?"; } | python3 -c '
import json, sys
limit, hold = int(sys.argv[1]), int(sys.argv[2])
ready, *answers = [json.loads(line) for line in sys.stdin]
assert ready["ready"] and len(ready["versions"]) > 1 and all(ready["versions"].values()), ready
assert len(answers) == 2, answers
for a in answers:
    assert a["done"] > 0, a
    assert sum(count for _, count in a["waits"]) == a["done"], a
    assert all(ns == float("%.1e" % ns) for ns, _ in a["waits"]), a
    assert 1 <= a["max_held"] <= limit, a
    assert 0 < a["elapsed_ns"] < 6e9 and a["cpu_ns"] > 0, a
    # Timers may be a little early, never much.
    assert a["hold_ns"] >= 0.8 * a["done"] * hold * 1000, a
    assert a["hold_ns"] <= a["elapsed_ns"] * limit, a
' "$2" "$4"
}

# Standard input is given to the driver, which must say what is wrong and exit 1.
fails() {
	what=$1
	shift
	echo "fails: $what"
	said=$(driver "$@") && { echo "exit 0, said $said" >&2; exit 1; }
	echo "$said" | tail -n 1 | python3 -c 'import json, sys; assert json.load(sys.stdin)["error"]'
}

# What every driver must refuse, with the name of a contestant that it has.
refuses() {
	echo '{"quit":true}' | driver "$1" 1 1 0 >/dev/null
	fails "malformed command" "$1" 1 1 0 <<-END
		{"run_ms":
	END
	fails "unknown command" "$1" 1 1 0 <<-END
		{"walk_ms":1}
	END
	fails "unknown contestant" nobody 1 1 0 </dev/null
	fails "limit 0" "$1" 0 1 0 </dev/null
	fails "no server" "$1" 1 1 0 1 </dev/null
}
