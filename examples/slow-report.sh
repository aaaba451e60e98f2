#!/bin/sh
# A handler that takes long needs no long lease: it is renewed while the handler runs. Should this machine die, another
# one has the job after 30 s. A report that takes more than an hour is stuck: it is ended, and tried again.
set -eu
exec delayq drain --for "${1:-59s}" --lease 30s --timeout 1h report -- make-report
