#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `verge bench` from a user's side.
#
#   tool.sh CASE, with VERGE, the tool, in the environment
set -euo pipefail

: "${VERGE:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
  echo "FAILED: $*; it said:" >&2
  cat said >&2
  exit 1
}
said() { grep -qF -- "$1" said || fail "it did not say: $1"; }
bench() { "$VERGE" bench "$@" >said 2>&1; }
refuses() {  # WORDS.. -- TEXT: status 2, and the text
  local words=()
  while [[ $1 != -- ]]; do
    words+=("$1")
    shift
  done
  local status=0
  bench "${words[@]}" || status=$?
  ((status == 2)) || fail "${words[*]} ended with status $status"
  said "$2"
}
small=(--quick --repeat 1 --timers 500 --peer none --workload start_stop,reset_later)

case ${1:?which case} in
  writes_its_figures)
    bench "${small[@]}" --engine hybrid,timer_queue --json out.json --html out.html || fail "it failed"
    said "start_stop, ns_per_op"
    said "verge/timer_queue"
    grep -q '"schema": 1' out.json || fail "out.json has no schema"
    grep -q '"metric": "longest_ns"' out.json || fail "out.json has no figures"
    grep -q 'verge/hybrid' out.html || fail "out.html has no figures"
    ;;

  ends_on_interrupt_with_what_it_has)
    # How long it takes until there is something to keep depends on the machine: so it is retried
    # with more time.
    for seconds in 0.5 2 8 32; do
      "$VERGE" bench --repeat 1000 --timers 500 --peer none --engine hybrid --workload start_stop \
        --json out.json --html out.html >said 2>&1 &
      tool=$!
      sleep $seconds
      kill -INT $tool
      # A signal that came before the handler was installed had no effect.
      for ((i = 0; i < 300; i++)); do kill -0 $tool 2>/dev/null && sleep 0.1; done
      kill -KILL $tool 2>/dev/null && continue
      wait $tool || fail "it ended with status $?"
      grep -q '"metric": "ns_per_op"' out.json && break
    done
    said "interrupted"
    grep -q '"metric": "ns_per_op"' out.json || fail "out.json has no figures"
    [[ -s out.html ]] || fail "there is no page"
    ;;

  names_what_it_knows)
    refuses --engine splay -- "there is no engine 'splay'; there are: hybrid, global_heap"
    refuses --peer kafka -- "there is no peer 'kafka'; there are: boost_asio, libuv"
    refuses --workload start -- "there is no workload 'start'; there are: start_stop, reset_later"
    refuses --engin hybrid -- "--help --engine --peer --workload --timers"
    if "$VERGE" brench >said 2>&1; then fail "it knows the command brench"; fi
    said "there are: bench"
    said "--help --version"
    ;;

  refuses_what_it_cannot_use)
    refuses --timers 1x -- "--timers wants numbers from 1"
    refuses --threads 0 -- "--threads wants numbers from 1 to 64"
    refuses --repeat 0 -- "--repeat"
    refuses --fast -- "--fast"
    refuses --engine none --peer none -- "nothing to do"
    refuses --json /no/such/folder/x -- "cannot write /no/such/folder/x"
    refuses --compare one.json -- "--compare"
    refuses --compare no.json no.json -- "cannot read no.json"
    echo '{"schema": 99}' >other.json
    refuses --merge other.json -- "its schema is 99"
    echo '{' >broken.json
    refuses --merge broken.json -- "broken.json: this is no report of verge bench"
    ;;

  compares_two_reports)
    row() {  # MEDIAN
      echo '{"schema": 1, "machine": {}, "results": [{"system": "verge/hybrid", "workload": "fire",
        "timers": 1000, "threads": 1, "metric": "ns_per_op", "median": '"$1"', "min": '"$1"',
        "max": '"$1"', "runs": 5}]}'
    }
    row 100 >old.json
    row 103 >same.json
    row 150 >slow.json
    bench --compare old.json same.json || fail "what is within the noise counts as worse"
    said "0 worse"
    if bench --compare old.json slow.json; then fail "nothing got worse"; fi
    said "worse   verge/hybrid"
    ;;

  merges_reports)
    bench "${small[@]}" --engine hybrid --json a.json || fail "it failed"
    bench "${small[@]}" --engine timing_wheel --json b.json || fail "it failed"
    bench --merge a.json b.json --json all.json || fail "it failed"
    grep -q verge/hybrid all.json || fail "one is missing"
    grep -q verge/timing_wheel all.json || fail "the other is missing"
    ;;

  *) fail "no such case: $1" ;;
esac
