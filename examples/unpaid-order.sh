#!/bin/sh
# unpaid-order.sh placed ORDER [DELAY] | paid ORDER: an order that is not paid within 15 minutes is closed (by close-order,
# see crontab).
set -eu
order=$2

case $1 in
# The job is named after the order, so repeating this makes no second one.
placed) delayq enqueue --in "${3:-15m}" --id "order:$order" order-close "{\"orderId\":$order}" ;;

# The job goes. Exit 1 when there is none any more, and a note when its handler is at it: payment and job may cross, so the
# handler must ask whether the order was paid.
paid) delayq cancel -q order-close "order:$order" ;;

*) echo "usage: $0 placed ORDER [DELAY] | paid ORDER" >&2 && exit 64 ;;
esac
