<?php
// Enqueues, replaces and cancels jobs through the documented keys. Needs php-redis, but no delayq on this machine.
// Usage: php producer.php enqueue order-close 900 '{"orderId":42}'             prints the id of the new job
//        php producer.php keep    order-close order:42 900 '{"orderId":42}'    unless the queue has the id
//        php producer.php replace order-close order:42 900 '{"orderId":42}'    if it is pending, or not there
//        php producer.php cancel  order-close order:42                         if it is pending
// DELAYQ_REDIS_URL  where Redis is, in delayq's own forms, without parameters, and hosts by name or IPv4:
//                   redis://[[user]:password@]host[:port][/db], unix://[login@]/path, redis+cluster://[login@]h1:port,h2…,
//                   redis+sentinel://[login@]s1[:port],s2…/NAME[/db]; rediss in place of redis means TLS
// DELAYQ_TLS_CA     with TLS: path of the CA certificates to trust, if they are not those of the system

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

/** Runs producer.lua in a partition. */
function call(object $redis, string $tag, string $layout, string ...$words): string|array
{
    $script = file_get_contents(__DIR__ . '/producer.lua');
    $names = ['config', 'payload', 'pending', 'active', 'dead', 'meta', 'done'];
    $keys = array_map(fn ($name) => "delayq:{{$tag}}:$name", $names);
    $args = [$layout, ...$words];
    $answer = $redis instanceof Predis\Client
        ? $redis->eval($script, count($keys), ...$keys, ...$args)
        : $redis->eval($script, [...$keys, ...$args], count($keys));
    return $answer ?: throw new RuntimeException($redis->getLastError());
}

/** Does `enqueue`, `keep`, `replace` or `cancel`. Returns what producer.lua says. */
function act(object $redis, string $act, string $queue, string $id, int $seconds = 0, string $payload = ''): string
{
    $words = [$act, $id, $seconds * 1000, $payload];
    [$layout, $tags] = ['1 0/1', [$queue]];
    // If the queue has partitions, the first call learns the layout, and the second one goes to that of the id.
    for ($calls = 0; $calls < 3 && preg_match('~^1 \d+/\d+$~D', $layout); $calls++) {
        $i = partitionOf($id, count($tags));
        $answer = call($redis, $tags[$i], preg_replace('~^1 \d+/~', "1 $i/", $layout), ...$words);
        if (is_string($answer)) {
            return $answer;
        }
        $layout = $answer[0];
        $tags = array_filter(explode(' ', "$queue $answer[1]"), 'strlen');
    }
    if ($act === 'enqueue' && str_contains($layout, ' from ')) {
        return call($redis, $queue, '', ...$words); // a new id may be in any partition
    }
    throw new RuntimeException("$queue is getting more partitions, or is of a newer delayq: try later, or use delayq");
}

/** The parts of a URL: kind ('', sentinel, cluster, unix), TLS, [user, password], [[host, port], …], what follows. */
function partsOf(#[SensitiveParameter] string $url): array
{
    $form = '~^(redis|rediss|unix)(?:\+(sentinel|cluster))?://(?:(?:([^:@]*):)?(.*)@)?([^/?]*)/?([^?]*)$~D';
    if (!preg_match($form, $url, $parts)) {
        throw new RuntimeException('DELAYQ_REDIS_URL has a form that is unknown here');
    }
    [, $scheme, $kind, $user, $password, $hosts, $rest] = $parts;
    $default = $kind === 'sentinel' ? 26379 : 6379;
    return [
        $scheme === 'unix' ? 'unix' : $kind,
        $scheme === 'rediss',
        array_values(array_filter(array_map('rawurldecode', [$user, $password]), 'strlen')),
        array_map(fn ($host) => explode(':', $host) + [1 => $default], explode(',', $hosts)),
        explode('/', $rest),
    ];
}

/** What PHP needs to know for TLS. */
function tlsOptions(): array
{
    return array_filter(['cafile' => getenv('DELAYQ_TLS_CA')]);
}

function connectTo(string $host, int $port, bool $tls, array $login): Redis
{
    $redis = new Redis();
    $redis->connect($tls ? "tls://$host" : $host, $port, 5, null, 0, 5, $tls ? ['stream' => tlsOptions()] : []);
    if ($login) {
        $redis->auth($login);
    }
    return $redis;
}

/** Asks Sentinels, one after the other, where the primary of this name is. */
function primaryOf(string $name, array $sentinels, bool $tls): array
{
    foreach ($sentinels as [$host, $port]) {
        try {
            $primary = connectTo($host, $port, $tls, [])->rawCommand('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', $name);
        } catch (RedisException) {
            continue;
        }
        if ($primary) {
            return $primary;
        }
    }
    throw new RuntimeException("no Sentinel knows where $name is");
}

function connect(#[SensitiveParameter] string $url): Redis|RedisCluster
{
    [$kind, $tls, $login, $hosts, $rest] = partsOf($url);
    if ($kind === 'cluster') {
        $seeds = array_map(fn ($host) => ($tls ? 'tls://' : '') . implode(':', $host), $hosts);
        return new RedisCluster(null, $seeds, 5, 5, false, $login ?: null, $tls ? tlsOptions() : null);
    }
    if ($kind === 'unix') {
        return connectTo('/' . implode('/', $rest), 0, false, $login);
    }
    [$host, $port] = $kind === 'sentinel' ? primaryOf(array_shift($rest), $hosts, $tls) : $hosts[0];
    $redis = connectTo($host, (int) $port, $tls, $login);
    if (!$redis->select((int) ($rest[0] ?? 0))) {
        throw new RuntimeException($redis->getLastError());
    }
    return $redis;
}

/** Does what the words of a command line say. */
function produce(object $redis, string $act, string $queue, string ...$words): string
{
    $id = $act === 'enqueue' ? bin2hex(random_bytes(8)) : array_shift($words);
    $answer = act($redis, $act, $queue, $id, ...$words);
    if ($answer === 'created') {
        $redis->sAdd('delayq:queues', $queue); // lets "delayq inspect" list the queue
    }
    return $act === 'enqueue' ? $id : $answer;
}

function main(callable $connect, string ...$words): void
{
    $count = ['enqueue' => 4, 'keep' => 5, 'replace' => 5, 'cancel' => 3][$words[0] ?? ''] ?? -1;
    if (count($words) !== $count || ($words[0] !== 'cancel' && !ctype_digit($words[$count - 2]))) {
        fwrite(STDERR, "usage: enqueue QUEUE SECONDS PAYLOAD, keep|replace QUEUE ID SECONDS PAYLOAD, cancel QUEUE ID\n");
        exit(64);
    }
    try {
        echo produce($connect(getenv('DELAYQ_REDIS_URL') ?: 'redis://127.0.0.1'), ...$words), "\n";
    } catch (Exception $error) {
        fwrite(STDERR, $error->getMessage() . "\n");
        exit(1);
    }
}

if (realpath($argv[0]) === __FILE__) {
    main(connect(...), ...array_slice($argv, 1));
}
