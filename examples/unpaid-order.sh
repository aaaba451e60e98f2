#!/bin/sh
# unpaid-order.sh placed ORDER [DELAY] | paid ORDER
# Closes an order that is not paid within 15 minutes (with close-order, see crontab).
set -eu
order=$2

case $1 in
# The order number is the id, so repeating this does not create a second job.
placed) delayq enqueue --in "${3:-15m}" --id "order:$order" order-close "{\"orderId\":$order}" ;;

# Removes the job. Exits 1 if there is none any more, and prints a note if its handler is running: payment and closing
# may overlap, so the handler must check whether the order was paid.
paid) delayq cancel -q order-close "order:$order" ;;

*) echo "usage: $0 placed ORDER [DELAY] | paid ORDER" >&2 && exit 64 ;;
esac
