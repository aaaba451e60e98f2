#!/bin/sh
# A slow handler needs no long lease: the lease is renewed while the handler runs. If this machine dies, another one gets
# the job after 30 s. A report that takes more than an hour is stuck: it is killed and tried again.
set -eu
exec delayq drain --for "${1:-59s}" --lease 30s --timeout 1h report -- make-report
