<?php
// Enqueues a job under an id of its own, unless the queue has it: also in a queue with partitions.
// Needs php-redis, but no delayq on this machine.
// Usage: php keep.php shop order:42 900 '{"orderId":42}'

// A MULTI could not look first. Nothing is written if the queue got more partitions in between.
const KEEP = <<<'LUA'
if (redis.call('HGET', KEYS[1], 'layout') or '1') ~= ARGV[1] then return 'layout' end
if redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 then return 'kept' end
local now = redis.call('TIME')
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
redis.call('ZADD', KEYS[3], now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[3] * 1000, ARGV[2])
return 'created'
LUA;

/** Linear hashing: the index of the partition to which an id belongs. */
function partitionOf(string $id, int $count): int
{
    if (preg_match('/@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/D', $id)) {
        return 0; // a job of a recurring one
    }
    for ($power = 1; $power < $count; $power *= 2);
    $crc = crc32($id);
    return $crc % $power < $count ? $crc % $power : $crc % intdiv($power, 2);
}

function keep(Redis $redis, string $queue, string $id, string $seconds, string $payload): string
{
    $config = $redis->hMGet("delayq:{{$queue}}:config", ['layout', 'partitions']);
    $layout = $config['layout'] ?: '1';
    if (str_contains($layout, ' from ')) {
        return 'growing'; // where the job may be is known when that is done
    }
    $tags = array_merge([$queue], array_filter(explode(' ', $config['partitions'] ?: '')));
    $i = partitionOf($id, count($tags));
    $mine = preg_replace('~^2 0/~', "2 $i/", $layout);
    $keys = array_map(fn ($name) => "delayq:{{$tags[$i]}}:$name", ['config', 'payload', 'pending']);
    return $redis->eval(KEEP, [...$keys, $mine, $id, $seconds, $payload], 3);
}

[, $queue, $id, $seconds, $payload] = $argv;
$redis = new Redis();
$socket = getenv('REDIS_SOCKET');
$socket ? $redis->connect($socket) : $redis->connect('127.0.0.1', 6379);
$redis->sAdd('delayq:queues', $queue); // lets "delayq inspect" list the queue
$answer = keep($redis, $queue, $id, $seconds, $payload);
if ($answer === 'layout' || $answer === 'growing') {
    fwrite(STDERR, "$queue is getting more partitions: try again later, or use delayq enqueue\n");
    exit(1);
}
echo "$answer\n";
