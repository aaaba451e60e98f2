#!/bin/sh
# A slow handler needs no long lease: the lease is renewed while the handler runs. If this machine dies, another one
# gets the job after 30 s. A report that takes over an hour is stuck: its handler is killed, and the job is retried.
set -eu
exec delayq drain --for "${1:-59s}" --lease 30s --timeout 1h report -- make-report
