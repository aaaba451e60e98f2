#!/bin/sh
# Prepares a checkout for "npm test" and "npm run demo": installs what is missing and builds. Arguments name more programs
# to install, such as faketime.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else say "this needs root: $*"; exit 1
  fi
}

brew_name() {
  case $1 in
    redis-server) echo redis ;;
    faketime) echo libfaketime ;;
  esac
}

for program in redis-server "$@"; do
  if command -v "$program" >/dev/null; then continue; fi
  if command -v apt-get >/dev/null; then
    say "$program is missing; installing it with apt-get"
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$program"
  elif command -v brew >/dev/null; then
    say "$program is missing; installing it with brew"
    brew install "$(brew_name "$program")"
  else
    say "$program is missing, and there is neither apt-get nor brew: install it (Redis 6.2 or newer), then try again"
    exit 1
  fi
done

# npm writes its hidden lock file last. If package-lock.json is newer, the install is incomplete or outdated.
if [ -z "$(find node_modules/.package-lock.json -newer package-lock.json 2>/dev/null)" ]; then
  say 'Node packages are missing or outdated; installing them with npm ci'
  npm ci --include=dev --no-audit --no-fund
fi

say 'building'
npm run --silent build
