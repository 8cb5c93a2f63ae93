#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks what ./dev does about packages that are missing, without a package being installed: dpkg,
# apt, sudo and the build tools are stand-ins, put first in PATH, that write down how they were called.
#
#   check.sh CASE, with SOURCE, the project's root, in the environment
set -euo pipefail

: "${SOURCE:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
readonly calls=$work/calls

fail() {
  echo "FAILED: $*; ./dev said:" >&2
  cat "$work/said" >&2
  echo "and called:" >&2
  cat "$calls" >&2
  exit 1
}

# A program that notes its name and arguments and then does what BODY says.
stand_in() {  # NAME BODY
  printf '#!/bin/bash\necho "%s $*" >>"%s"\n%s\n' "$1" "$calls" "$2" >"$work/$1"
  chmod 755 "$work/$1"
}

touch "$calls"
chmod 666 "$calls"
stand_in cmake ''
stand_in ctest ''
stand_in apt-get ''
stand_in apt-cache ''
stand_in sudo 'exit 1'
# Of the packages asked for, after two options, all are there but these.
stand_in dpkg-query 'printf "installed %s\n" "${@:3}" | grep -vE " (libgmock-dev|ninja-build)$"; exit 1'

dev_test() { dev_as "$1" test; }
dev_as() {  # root|user COMMAND..: runs ./dev COMMAND as root or as another user
  local as=()
  if [[ $1 == user ]] && ((EUID == 0)); then
    as=(setpriv --reuid=65534 --clear-groups)
  elif [[ $1 == root ]] && ((EUID != 0)); then
    # Only root can be root here; a sudo stand-in that always succeeds has the same effect.
    stand_in sudo '[[ $1 == --non-interactive ]] || exec "$@"'
  fi
  # Read here and run in /, as that user may have no way into the project's folder.
  env PATH="$work:/usr/bin:/bin" CI=true "${as[@]}" \
    bash -c "$(sed -e "s|^cd .*|cd /|" -e "${changed:-}" "$SOURCE/dev")" dev "${@:2}" >"$work/said" 2>&1
}
called() { grep -q -- "$1" "$calls"; }
said() { grep -q -- "$1" "$work/said"; }

case ${1:?which case} in
  installs_what_is_missing)
    dev_test root || fail "it failed"
    said 'installing what is missing: libgmock-dev ninja-build$' || fail "it did not say what it installs"
    called 'apt-get install .* libgmock-dev ninja-build$' || fail "it did not install exactly that"
    called 'apt-get update' && fail "it fetched lists that it had"
    called 'ctest --preset release' || fail "it did not continue to the tests"
    ;;

  names_a_missing_package_once)
    # The tests want it for the example server, and for the benchmarks.
    stand_in dpkg-query 'printf "installed %s\n" "${@:3}" | grep -vE " libboost-dev$"; exit 1'
    dev_test root || fail "it failed"
    said 'installing what is missing: libboost-dev$' || fail "it did not name it once"
    ;;

  fetches_lists_that_are_missing)
    stand_in apt-cache 'exit 100'
    dev_test root || fail "it failed"
    [[ $(grep -m1 '^apt-get' "$calls") == 'apt-get update'* ]] || fail "it did not fetch the lists first"
    ;;

  installs_nothing_where_nothing_is_missing)
    stand_in dpkg-query 'shift 2; printf "installed %s\n" "$@"'
    dev_test user || fail "it failed"
    called '^apt-get\|^sudo' && fail "it called the package manager"
    called 'ctest --preset release' || fail "it did not continue to the tests"
    ;;

  prints_the_command_where_it_may_not)
    dev_test user && fail "it continued without the packages"
    said 'sudo apt-get install --yes --no-install-recommends libgmock-dev ninja-build$' ||
      fail "it did not print the command to run"
    called '^apt-get' && fail "it called the package manager"
    ;;

  leaves_the_format_to_the_version_that_it_was_made_with)
    stand_in apt-get '[[ $1 != install ]]'
    changed='s/clang-format-14/clang-format-99/; s/bookworm/another/'
    stand_in dpkg-query 'exit 1'
    dev_as root check format || fail "it failed"
    said 'not available here: not checked' || fail "it did not say so"
    changed='s/clang-format-14/clang-format-99/; s/=bookworm/=/'
    ! dev_as root check format || fail "on the system that has it, it was not missed"
    ;;

  checks_portability_with_other_compilers)
    stand_in dpkg-query 'printf "installed %s\n" "${@:3}" | grep -vE " (clang|qemu-user)$"; exit 1'
    stand_in qemu-aarch64 ''
    dev_as root check portability || fail "it failed"
    called 'apt-get install .* clang qemu-user$' || fail "it did not install what is missing"
    for way in CXX_COMPILER=.*clang++ UNITY_BUILD=ON CXX_STANDARD=23 aarch64-linux-gnu; do
      called "cmake --preset library .*VERGE_CHECK_HEADERS=ON .*$way" || fail "it did not build with $way"
    done
    called 'qemu-aarch64 .* build/aarch64/tests/task_test' || fail "it ran no test for aarch64"
    ;;

  *) fail "no such case: $1" ;;
esac
exit 0
