#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs Debian packages as a user would, with apt, which resolves what they depend on and runs their
# scripts, into a new Debian 12 in a folder; runs the autopkgtest there; removes them again.
# usage: packaging/install_debs.sh DEBS TREE WORK     DEBS has the packages, TREE the source package
#
# Needs root, debootstrap and a mirror. Exits with 77 where one is missing: then nothing was tried.
set -euo pipefail
debs=$(realpath "$1") tree=$(realpath "$2") work=$3
base=$work/base root=$work/root
mkdir -p "$work"

skip() {
  echo "install_debs: $*" >&2
  exit 77
}
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

((EUID == 0)) || skip "only root can make a system in a folder"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -m1 '/debian/\?$') ||
  skip "apt knows no mirror of Debian"

# The bare system is kept, as it takes a minute to make.
if [[ ! -e $base/complete ]]; then
  rm -rf "$base"
  debootstrap --variant=minbase bookworm "$base" "$mirror" >"$work/debootstrap.log" 2>&1 ||
    { tail -n 5 "$work/debootstrap.log" >&2; skip "debootstrap does not work here"; }
  touch "$base/complete"
fi
rm -rf "$root"
cp --archive "$base" "$root"
cp /etc/resolv.conf "$root/etc/resolv.conf"
mkdir "$root/debs" "$root/tree"
cp "$debs"/*.deb "$root/debs"
cp --archive "$tree/." "$root/tree"
# No service starts in there.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod +x "$root/usr/sbin/policy-rc.d"

# In namespaces of its own: what is mounted in there is not mounted here, and ends with it.
inside() {
  unshare --mount --pid --fork --mount-proc="$root/proc" chroot "$root" \
    env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}

inside apt-get update --quiet=2
mapfile -t packages < <(cd "$root/debs" && printf '/debs/%s\n' *.deb)
inside apt-get install --quiet=2 --yes --no-install-recommends "${packages[@]}" ||
  fail "apt cannot install the packages with what they depend on"
[[ -z $(inside dpkg --audit) ]] || fail "dpkg --audit: $(inside dpkg --audit)"

# The command, its page, and the service, with nothing but what the packages depend on.
inside verge --version
inside test -e /usr/share/man/man1/verge.1.gz || inside grep -q path-exclude /etc/dpkg/dpkg.cfg.d -r ||
  fail "verge has no manual page"
inside test -e /lib/systemd/system/verge.service || fail "verge-server has no unit"
inside test -e /usr/share/doc/libverge-doc/html/index.html || inside grep -q path-exclude /etc/dpkg/dpkg.cfg.d -r ||
  fail "libverge-doc has no site"

# What debian/tests/control says, and its test.
depends=$(sed -n 's/^Depends: libverge-dev, //p' "$root/tree/debian/tests/control")
# shellcheck disable=SC2086
inside apt-get install --quiet=2 --yes --no-install-recommends ${depends//,/}
inside sh -c 'cd /tree && debian/tests/consumer' || fail "the autopkgtest"

mapfile -t names < <(for deb in "$debs"/*.deb; do dpkg-deb --field "$deb" Package; done)
inside apt-get purge --quiet=2 --yes "${names[@]}"
left=$(inside find /usr/include/verge /usr/lib/*/libverge* /usr/bin/verge /usr/lib/cmake/verge /lib/systemd/system/verge.service \
  2>/dev/null || true)
[[ -z $left ]] || fail "these are left when the packages are removed: $left"
rm -rf "$root"
echo "install_debs: ${names[*]} were installed by apt into a new Debian 12, used, and removed"
