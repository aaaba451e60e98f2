#!/bin/sh
# unpaid-order.sh ORDER [DELAY]: an order that is not paid within 15 minutes is closed (by close-order, see crontab).
set -eu
order=$1

# When it is placed. The job is named after the order, so repeating this makes no second one.
delayq enqueue --in "${2:-15m}" --id "order:$order" order-close "{\"orderId\":$order}"

# When it is paid, the job is to go again: "delayq cancel order-close order:$order". delayq cannot do that yet. Until it
# can, the handler asks whether the order was paid, as it should in any case: payment and job may cross.
