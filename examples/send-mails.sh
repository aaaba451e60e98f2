#!/bin/sh
# At least once, with a long-running handler: it reads a line for each job and prints the lines of those that it has
# done. These are removed. A job whose line is not printed within 5 minutes is delivered again.
set -eu
delayq drain --lease 5m mail | jq -c --unbuffered 'select(.payload.to?)' | delayq ack
