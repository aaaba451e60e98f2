#!/bin/sh
# Closes orders: ORDERS=/srv/orders delayq drain --watch --stay -P 4 order-close -- ./worker.sh
# jq takes the fields that are needed out of each line; it must not hold lines back, nor leave one out.
jq --unbuffered -r '[.ticket, ((.payload.orderId? | numbers) // "")] | @tsv' | while read -r ticket id; do
  order=$ORDERS/$id
  if [ -z "$id" ] || [ "$id" != "${id%.*}" ]; then
    echo "dead $ticket no order id" >&3
  elif [ ! -e "$order" ]; then
    echo "dead $ticket no order $id" >&3
  elif state=$(cat "$order" 2>&1); then
    if [ "$state" = open ]; then echo "$id" >> "$ORDERS/closed"; fi
    echo "ok $ticket" >&3
  else
    echo "retry $ticket - $state" >&3
  fi
done
