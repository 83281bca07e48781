import json
import sqlite3
import sys
import uuid


def pay(database, order_id, version):
    connection = sqlite3.connect(database, timeout=10, isolation_level=None)
    event_id = str(uuid.uuid4())
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE orders SET status = 'PAID', version = ? WHERE id = ?", (version, order_id))
        connection.execute(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, topic, payload)"
            " VALUES (?, 'order', ?, ?, 'OrderPaid', 'orders', ?)",
            (event_id, order_id, version, json.dumps({"orderId": order_id})),
        )
        connection.execute("COMMIT")
    finally:
        connection.close()  # undoes what is not committed
    return event_id


if __name__ == "__main__":
    print(pay(sys.argv[1], sys.argv[2], int(sys.argv[3])))
