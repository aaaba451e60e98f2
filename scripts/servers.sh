#!/usr/bin/env bash
set -euo pipefail

usage() {
  cat <<'END'
Usage: scripts/servers.sh [options] SERVER...

Installs newer servers beside the system's, from the packages of a newer Debian
release, and prints the paths of their programs: the server first, then its
command line, its check of AOF files, and its Sentinel. The system stays as it is.
What is there already is only printed.

  SERVER             redis-8 or valkey-8
  --into DIRECTORY   where to install them (default: DELAYQ_SERVERS, else
                     delayq-servers in XDG_CACHE_HOME or ~/.cache)
  --mirror URL       a mirror of Debian (default: DELAYQ_DEBIAN_MIRROR, else that
                     of this machine's own apt sources)
  --keyring FILE     the keys of Debian (default: those of the package
                     debian-archive-keyring)

Remove the directory to install them anew.

Example:
  DELAYQ_TEST_SERVER=$(scripts/servers.sh redis-8 | head -n 1) npx vitest run test/queue
END
}

# The release that has these servers.
readonly RELEASE=trixie
readonly PROGRAMS=(server cli check-aof sentinel)

# fail STATUS WHAT WHY NEXT
fail() {
  printf 'servers: %s\n  why: %s\n  next: %s\n' "$2" "$3" "$4" >&2
  exit "$1"
}

misused() { fail 64 "$1" "$2" 'see scripts/servers.sh --help'; }

# Prints the mirror from which this machine gets its own packages.
own_mirror() {
  # shellcheck disable=SC2016 # apt fills these in
  apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(REPO_URI) $(RELEASE)' 'Identifier: Packages' |
    awk '$1 == "Debian" && $2 == "main" && $4 !~ /-/ { print $3; exit }'
}

# Runs apt with lists and a cache of its own, in $work. It checks signatures as always.
own_apt() { "$1" -qq -c "$work/apt.conf" "${@:2}" >&2; }

# Prepares $work for own_apt, and downloads the list of packages.
prepare() {
  local mirror=${mirror:-$(own_mirror)}
  [ -n "$mirror" ] || fail 78 'no mirror of Debian is known' 'the apt sources of this machine name none' \
    'run apt-get update if this is Debian; else name a mirror with --mirror'
  [ -r "$keyring" ] || fail 78 "cannot check what $mirror sends" "$keyring is missing" \
    'install the package debian-archive-keyring, or name its keys with --keyring'
  mkdir -p "$work"/{sources,state/lists/partial,cache/archives/partial,preferences}
  : >"$work/status"
  printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$RELEASE" >"$work/sources/$RELEASE.list"
  # Hooks of the system are for its own lists. Nobody but this user can write into $work.
  cat >"$work/apt.conf" <<END
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
APT::Sandbox::User "";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$work/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "$work/preferences";
Dir::State "$work/state";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
END
  own_apt apt-get -o APT::Update::Error-Mode=any update ||
    fail 69 "cannot get the packages of Debian $RELEASE from $mirror" 'apt-get update failed: see above' \
      'try again, or name another mirror with --mirror'
}

# Installs a server, such as redis-8, all at once: from here on it is there, or nothing is.
install_server() {
  local name=$1 family=${1%-*} packages loader program root=$work/$1/root
  [ -e "$work/apt.conf" ] || prepare
  # Of what they depend on, only libraries matter: no service is set up.
  packages=$(apt-get -c "$work/apt.conf" install -s --no-install-recommends "$family"-{server,tools,sentinel} |
    awk -v own="^$family-" '$1 == "Inst" && ($2 ~ own || $2 ~ /^(lib|zlib)/) { print $2 }') ||
    fail 69 "cannot find the packages of $name" "Debian $RELEASE has none for this machine: see above" \
      'install the server in another way and name its program in DELAYQ_TEST_SERVER'
  mkdir -p "$root" "$work/$name/bin" "$work/$name/debs"
  # shellcheck disable=SC2086 # one word for each
  (cd "$work/$name/debs" && own_apt apt-get download $packages) ||
    fail 69 "cannot get the packages of $name" 'apt-get download failed: see above' 'try again'
  for package in "$work/$name/debs"/*.deb; do dpkg-deb -x "$package" "$root"; done
  rm -r "$work/$name/debs" "${root:?}/usr/share"

  # The libraries of that release need its own loader, which lies among them.
  loader=$(cd "$root" && find usr/lib/*/ -name 'ld*.so.*' -type f | head -n 1)
  for program in "${PROGRAMS[@]}"; do
    [ -e "$root/usr/bin/$family-$program" ] || continue
    cat >"$work/$name/bin/$family-$program" <<END
#!/bin/sh
# Runs it with the loader and the libraries of its own release, under the name by which it was called.
self=\$(readlink -f "\$0")
root=\${self%/bin/*}/root
exec "\$root/$loader" --library-path "\$root/${loader%/*}" --argv0 "\${0##*/}" \\
  "\$root/usr/bin/$family-$program" "\$@"
END
    chmod +x "$work/$name/bin/$family-$program"
  done
  "$work/$name/bin/$family-server" --version >&2 ||
    fail 70 "$name does not run on this machine" 'it was installed, but --version failed: see above' \
      'please report this as a bug, with the version of the system'
  # Another run may have been faster.
  mv -T "$work/$name" "$into/$name" 2>/dev/null || [ -x "$into/$name/bin/$family-server" ] ||
    fail 73 "cannot install $name" "$into/$name is in the way" 'remove it, then try again'
}

cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
into=${DELAYQ_SERVERS:-${cache:+$cache/delayq-servers}}
mirror=${DELAYQ_DEBIAN_MIRROR:-}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
names=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage && exit ;;
    --into | --mirror | --keyring) [ -n "${2:-}" ] || misused "what is $1?" 'it needs a value' ;;&
    --into) into=$2 && shift ;;
    --mirror) mirror=$2 && shift ;;
    --keyring) keyring=$2 && shift ;;
    redis-8 | valkey-8) names+=("$1") ;;
    *) misused "what is $1?" 'the servers are redis-8 and valkey-8' ;;
  esac
  shift
done
[ ${#names[@]} -gt 0 ] || misused 'which server?' 'none was named'
# Not in /tmp, where others could put programs.
[ -n "$into" ] || misused 'where to install them?' 'HOME is not set, nor is --into given'
case $into in /*) ;; *) into=$PWD/$into ;; esac

for name in "${names[@]}"; do
  [ ! -x "$into/$name/bin/${name%-*}-server" ] || continue
  for program in apt-get dpkg-deb; do
    command -v "$program" >/dev/null || fail 69 "cannot install $name" "this machine has no $program" \
      'use Debian or Ubuntu, or install the server in another way and name its program in DELAYQ_TEST_SERVER'
  done
  if [ -z "${work:-}" ]; then
    mkdir -p "$into" || fail 73 "cannot install $name" "$into cannot be made" 'name another directory with --into'
    # Of runs that were killed.
    find "$into" -maxdepth 1 -name '.installing-*' -mmin +60 -exec rm -rf {} +
    # In the same directory, so that the last step is one move.
    work=$(mktemp -d "$into/.installing-XXXXXX" 2>/dev/null) ||
      fail 73 "cannot install $name" "$into is not writable" 'name another directory with --into'
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM HUP
  fi
  install_server "$name"
done
for name in "${names[@]}"; do
  for program in "${PROGRAMS[@]}"; do
    path=$into/$name/bin/${name%-*}-$program
    [ ! -x "$path" ] || printf '%s\n' "$path"
  done
done
