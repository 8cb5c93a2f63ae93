#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the examples of docs/tasks.md that use curl, in their order, against a server of their own, and
# compares what they print. An example is a line "$ COMMAND" in a block that follows <!-- curl -->;
# the lines after it are what it prints, where "..." stands for anything.
# usage: curl_examples.sh VERGE DOCUMENT
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/support/served.sh"
verge=$(realpath "$1")
document=$(realpath "$2")
cd "$scratch" || exit
start_server "$verge" --http 127.0.0.1:0 --push-private

failed=0
examples=0
command=
expected=
run() {
  [[ -n $command ]] || return 0
  local got pattern=$expected character
  got=$(eval "$command" 2>&1)
  for character in '\\' '*' '?' '['; do
    pattern=${pattern//"$character"/\\$character}
  done
  pattern=${pattern//.../*}
  examples=$((examples + 1))
  # shellcheck disable=SC2053  # a pattern
  if [[ $got != $pattern ]]; then
    printf 'FAILED: %s\n  prints:   %s\n  expected: %s\n' "$command" "$got" "$expected"
    failed=1
  fi
  command=
}

inside=no
while IFS= read -r line; do
  case $inside:$line in
    no:'<!-- curl -->') inside=next ;;
    next:'```'*) inside=yes ;;
    yes:'```')
      run
      inside=no
      ;;
    yes:'$ '*)
      run
      command=${line#'$ '}
      command=${command//127.0.0.1:11380/$address}
      expected=
      ;;
    yes:*)
      if [[ $command == *\\ && -z $expected ]]; then
        command=${command%\\}${line//127.0.0.1:11380/$address}
      else
        expected+=${expected:+$'\n'}$line
      fi
      ;;
  esac
done <"$document"
((examples >= 10)) || { echo "only $examples examples found in $document"; failed=1; }
((failed)) || echo "$examples examples print what the document says"
exit $failed
