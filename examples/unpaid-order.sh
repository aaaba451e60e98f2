#!/bin/sh
# unpaid-order.sh placed ORDER [DELAY] | paid ORDER: an order that is not paid within 15 minutes is closed (by close-order,
# see crontab).
set -eu
order=$2

case $1 in
# The job is named after the order, so repeating this makes no second one.
placed) delayq enqueue --in "${3:-15m}" --id "order:$order" order-close "{\"orderId\":$order}" ;;

# Removes the job. Exit 1 when it is gone already, and a note when its handler is running: the payment may come in just
# then, so the handler must check whether the order was paid.
paid) delayq cancel -q order-close "order:$order" ;;

*) echo "usage: $0 placed ORDER [DELAY] | paid ORDER" >&2 && exit 64 ;;
esac
