<?php
// Enqueues a job through the documented keys. Needs php-redis, but no delayq on this machine.
// Usage: php enqueue.php order-close 900 '{"orderId":42}'
[, $queue, $seconds, $payload] = $argv;

$redis = new Redis();
$socket = getenv('REDIS_SOCKET');
$socket ? $redis->connect($socket) : $redis->connect('127.0.0.1', 6379);

[$now, $micros] = $redis->time(); // due by Redis's clock, not by this machine's
$due = $now * 1000 + intdiv($micros, 1000) + $seconds * 1000;
$id = bin2hex(random_bytes(8));

$redis->sAdd('delayq:queues', $queue); // lets "delayq inspect" list the queue
$redis->multi()
    ->hSet("delayq:{{$queue}}:payload", $id, $payload) // one JSON value on one line
    ->zAdd("delayq:{{$queue}}:pending", $due, $id)
    ->exec();
echo "$id\n";
