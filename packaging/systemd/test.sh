#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The unit and the Dockerfile: systemd understands the one, and the other's stages and files are there.
# usage: test.sh VERGE
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(dirname "$(dirname "$here")")
verge=$(realpath "$1")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
fail() {
  echo "FAILED: $*"
  failed=1
}

# The units, with the program where it is now.
sed "s|/usr/bin/verge|$verge|" "$here/verge.service" >"$scratch/verge.service"
cp "$here/verge.socket" "$scratch"
if command -v systemd-analyze >/dev/null; then
  found=$(systemd-analyze verify "$scratch/verge.service" "$scratch/verge.socket" 2>&1 |
    grep -F "$scratch/verge." || true)
  [[ -z $found ]] || fail "systemd-analyze verify: $found"
  exposure=$(systemd-analyze security --offline=true "$scratch/verge.service" 2>/dev/null |
    sed -n 's/.*Overall exposure level.*: \([0-9.]*\) .*/\1/p')
  if [[ -n $exposure ]] && ! awk -v e="$exposure" 'BEGIN { exit !(e < 3) }'; then
    fail "systemd-analyze security: an exposure of $exposure, where 2.9 is allowed"
  fi
  echo "exposure ${exposure:-not known}"
else
  echo "there is no systemd-analyze here"
fi

# Every option that the unit and the Dockerfile give is one that the program knows.
options=$("$verge" serve --help)
for option in $(grep -ohE -- '--[a-z-]+' <(grep -E '^(ExecStart|Environment)=' "$here/verge.service") \
  <(grep -E '^(ENTRYPOINT|CMD|  CMD)' "$tree/Dockerfile" | grep serve -A1)); do
  [[ $options == *"$option"* ]] || fail "verge serve does not know $option"
done

# The Dockerfile: instructions that exist, stages that are copied from, packages that Debian has.
stages=()
while read -r instruction rest; do
  case $instruction in
    FROM)
      [[ $rest == debian:bookworm* ]] || fail "FROM $rest"
      [[ $rest == *' AS '* ]] && stages+=("${rest##* AS }")
      ;;
    COPY)
      if [[ $rest == --from=* ]]; then
        stage=${rest#--from=}
        [[ " ${stages[*]} " == *" ${stage%% *} "* ]] || fail "COPY from a stage that is not there: $rest"
      fi
      ;;
    RUN | USER | VOLUME | EXPOSE | STOPSIGNAL | HEALTHCHECK | ENTRYPOINT | CMD) ;;
    *) fail "an instruction that is not expected: $instruction" ;;
  esac
done < <(sed -e '/^#/d' -e '/^$/d' "$tree/Dockerfile" | sed -e ':a' -e '/\\$/N; s/\\\n//; ta')
((${#stages[@]} == 1)) || fail "one stage has a name, not ${#stages[@]}"
if command -v apt-cache >/dev/null; then
  mapfile -t packages < <(sed -n '/--no-install-recommends/,/&& rm/p' "$tree/Dockerfile" |
    grep -vE 'install|rm -rf' | tr -d '\\' | tr -s ' ' '\n' | sed '/^$/d')
  known=$(apt-cache show --no-all-versions "${packages[@]}" 2>/dev/null | sed -n 's/^Package: //p')
  if [[ -n $known ]]; then
    for package in "${packages[@]}"; do
      [[ $'\n'$known$'\n' == *$'\n'$package$'\n'* ]] || fail "Debian has no package $package"
    done
  fi
fi
((failed)) || echo "all as expected"
exit $failed
