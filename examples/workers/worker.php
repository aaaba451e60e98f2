<?php
// Closes orders: ORDERS=/srv/orders delayq drain --watch --stay -P 4 order-close -- php worker.php
set_error_handler(fn ($level, $text) => throw new ErrorException($text)); // warnings, too
$dir = getenv('ORDERS');
$answers = fopen('php://fd/' . getenv('DELAYQ_ANSWER_FD'), 'w');
while (($line = fgets(STDIN)) !== false) {
    $job = json_decode($line, true);
    $ticket = $job['ticket'];
    $id = $job['payload']['orderId'] ?? null;
    try {
        if (!is_int($id)) { // (int) would make order 1 of true
            $answer = "dead $ticket no order id";
        } elseif (!file_exists("$dir/$id")) {
            $answer = "dead $ticket no order $id";
        } else {
            if (trim(file_get_contents("$dir/$id")) === 'open') {
                file_put_contents("$dir/closed", "$id\n", FILE_APPEND);
            }
            $answer = "ok $ticket";
        }
    } catch (Throwable $e) {
        $answer = "retry $ticket - " . strtok($e->getMessage(), "\n");
    }
    fwrite($answers, "$answer\n");
}
