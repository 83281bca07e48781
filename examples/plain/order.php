<?php

function pay(PDO $db, string $orderId, int $version): string
{
    $eventId = bin2hex(random_bytes(16));
    $db->beginTransaction();
    try {
        $update = $db->prepare("UPDATE orders SET status = 'PAID', version = ? WHERE id = ?");
        $update->execute([$version, $orderId]);
        $insert = $db->prepare(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload)
             VALUES (?, 'order', ?, ?, 'OrderPaid', 'orders', ?)"
        );
        $insert->bindValue(1, $eventId);
        $insert->bindValue(2, $orderId);
        $insert->bindValue(3, $version, PDO::PARAM_INT);
        $insert->bindValue(4, json_encode(['orderId' => $orderId]), PDO::PARAM_LOB); // bytes
        $insert->execute();
        $db->commit();
    } catch (Throwable $failed) {
        $db->rollBack();
        throw $failed;
    }
    return $eventId;
}

$db = new PDO($argv[1], null, null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION, PDO::ATTR_TIMEOUT => 10]);
echo pay($db, $argv[2], (int) $argv[3]), "\n";
