<?php
// A consumer of the stream into which "delayq drain --watch order-close --to-stream" hands jobs. Needs phpredis.
$redis = new Redis();
$redis->connect(...explode(':', getenv('REDIS') ?: '127.0.0.1:6379'));
$redis->setOption(Redis::OPT_READ_TIMEOUT, -1);
[$stream, $group, $me] = [getenv('STREAM') ?: 'delayq:{order-close}:stream', 'orders', gethostname() . ':' . getmypid()];
@$redis->xGroup('CREATE', $stream, $group, '0', true); // from the first entry; it may exist

function handle(array $job): void
{
    $order = json_decode($job['payload'], true, flags: JSON_THROW_ON_ERROR);
    file_put_contents(getenv('ORDERS') . '/closed', "{$order['orderId']}\n", FILE_APPEND);
}

while (true) {
    // What a consumer has had for a minute without an ack: it is dead, or has failed.
    $claimed = $redis->rawCommand('XAUTOCLAIM', $stream, $group, $me, getenv('IDLE_MS') ?: 60000, '0-0', 'COUNT', 10);
    $entries = [];
    foreach (array_filter($claimed[1], fn ($entry) => $entry && $entry[1]) as [$id, $fields]) {
        $entries[$id] = array_column(array_chunk($fields, 2), 1, 0);
    }
    $entries = $entries ?: ($redis->xReadGroup($group, $me, [$stream => '>'], 10, 1000)[$stream] ?? []);
    foreach ($entries as $id => $job) {
        try {
            handle($job);
            $redis->xAck($stream, $group, [$id]);
        } catch (Throwable $e) {
            fwrite(STDERR, "{$job['id']}: {$e->getMessage()}\n"); // it comes again, through xAutoClaim
        }
    }
}
