#!/usr/bin/env php
<?php
// Does the jobs that `delayq drain Q --to-stream` moves into a stream. Needs php-redis.
// Usage: php worker.php 'delayq:{order-close}:stream' GROUP NAME   NAME: another one for each worker of the group
// REDIS_URL  where Redis is (default: redis://127.0.0.1:6379)
// IDLE_MS    longer than a job takes: after this time, others take over what a dead worker had (default: 60000)
ini_set('display_errors', 'stderr');
set_error_handler(fn ($level, $text, $file, $line) => throw new ErrorException($text, 0, $level, $file, $line));

/** A job may come twice, so this must be harmless then. If it throws, the job comes again after IDLE_MS. */
function work(array $job): void
{
    echo "closed {$job['payload']}\n";
}

[, $stream, $group, $name] = $argv;
$idleMs = getenv('IDLE_MS') ?: 60000;
$url = parse_url(getenv('REDIS_URL') ?: 'redis://127.0.0.1');
$redis = new Redis();
$redis->connect($url['host'], $url['port'] ?? 6379);
$redis->xGroup('CREATE', $stream, $group, '0', true); // false: another worker has made it
while (true) {
    $entries = [];
    // php-redis has xAutoClaim from 6.0 on.
    $claimed = $redis->rawCommand('XAUTOCLAIM', $stream, $group, $name, $idleMs, '0-0', 'COUNT', 10);
    if ($claimed === false) {
        fwrite(STDERR, $redis->getLastError() . "\n"); // such as NOGROUP: a restart makes the group anew
        exit(1);
    }
    foreach (array_filter($claimed[1]) as [$id, $words]) { // Redis 6 tells of entries that are gone, too
        $entries[$id] = array_column(array_chunk($words, 2), 1, 0);
    }
    $entries = $entries ?: $redis->xReadGroup($group, $name, [$stream => '>'], 10, 5000)[$stream] ?? [];
    foreach ($entries as $id => $job) {
        try {
            work($job);
            $redis->xAck($stream, $group, [$id]);
        } catch (Throwable $error) {
            fwrite(STDERR, "{$job['id']} failed: {$error->getMessage()}\n");
        }
    }
}
