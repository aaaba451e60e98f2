<?php
// producer.php with Predis in place of php-redis: the same usage and variables.
require 'Predis/autoload.php'; // Debian's php-predis; with Composer it is vendor/autoload.php
require __DIR__ . '/producer.php';

function connectPredis(#[SensitiveParameter] string $url): Predis\Client
{
    [$kind, $tls, $login, $hosts, $rest] = partsOf($url);
    $transport = $tls ? ['scheme' => 'tls', 'ssl' => tlsOptions()] : ['scheme' => 'tcp'];
    $password = array_pop($login);
    $session = array_filter(['username' => array_pop($login), 'password' => $password], 'is_string');
    $nodes = array_map(fn ($host) => ['host' => $host[0], 'port' => $host[1]] + $transport, $hosts);
    return match ($kind) {
        'unix' => new Predis\Client(['scheme' => 'unix', 'path' => '/' . implode('/', $rest)] + $session),
        'cluster' => new Predis\Client(
            array_map(fn ($node) => $node + $session, $nodes),
            ['cluster' => 'redis', 'parameters' => $session + $transport],
        ),
        'sentinel' => new Predis\Client($nodes, [
            'replication' => 'sentinel',
            'service' => $rest[0],
            'parameters' => $session + $transport + ['database' => (int) ($rest[1] ?? 0)],
        ]),
        default => new Predis\Client($nodes[0] + $session + ['database' => (int) $rest[0]]),
    };
}

main(connectPredis(...), ...array_slice($argv, 1));
