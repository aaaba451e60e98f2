<?php
// Closes orders: ORDERS=/srv/orders delayq drain --watch --stay -P 4 order-close -- php worker.php
set_error_handler(fn ($level, $text) => throw new ErrorException($text)); // warnings, too
$dir = getenv('ORDERS');
$answers = fopen('php://fd/' . getenv('DELAYQ_ANSWER_FD'), 'w');
while (($line = fgets(STDIN)) !== false) {
    $job = json_decode($line, true);
    $ticket = $job['ticket'];
    try {
        $id = (int) $job['payload']['orderId'];
        if (!file_exists("$dir/$id")) {
            fwrite($answers, "dead $ticket no order $id\n");
            continue;
        }
        if (trim(file_get_contents("$dir/$id")) === 'open') {
            file_put_contents("$dir/closed", "$id\n", FILE_APPEND);
        }
        fwrite($answers, "ok $ticket\n");
    } catch (Throwable $e) {
        fwrite($answers, "retry $ticket - " . strtok($e->getMessage(), "\n") . "\n");
    }
}
