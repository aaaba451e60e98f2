#!/bin/sh
# Makes a checkout ready for "npm test" and "npm run demo": installs what is missing, says so, and builds.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else say "this needs root: $*"; exit 1
  fi
}

if ! command -v redis-server >/dev/null; then
  if command -v apt-get >/dev/null; then
    say 'redis-server is missing; installing it with apt-get'
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends redis-server
  elif command -v brew >/dev/null; then
    say 'redis-server is missing; installing it with brew'
    brew install redis
  else
    say 'redis-server is missing, and neither apt-get nor brew is here: install Redis 6.2 or newer, then try again'
    exit 1
  fi
fi

# npm writes the hidden lock file last, so one older than ours means an install that is missing, broken or outdated.
if [ -z "$(find node_modules/.package-lock.json -newer package-lock.json 2>/dev/null)" ]; then
  say 'Node packages are missing or outdated; installing them with npm ci'
  npm ci --include=dev --no-audit --no-fund
fi

say 'building'
npm run --silent build
