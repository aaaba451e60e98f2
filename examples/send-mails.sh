#!/bin/sh
# At least once, with a handler that stays: it gets a line for each job, and passes on the lines of the jobs that it has
# completed. Those are removed. What it does not pass on within 5 minutes comes again.
set -eu
delayq drain --lease 5m mail | jq -c --unbuffered 'select(.payload.to)' | delayq ack
