"""Consumes events in Python, each once in effect.

Events come as lines of JSON, the format "envelope" of a topic: pipe any broker's
console consumer into it. What counts is the transaction in consume(): the id of
the event goes into consumed_event together with the effect, or neither does.

    consumer.py DATABASE GROUP < events

The tables are those of `waybill migrate`.
"""

import json
import sqlite3
import sys

FIRST = (
    "INSERT INTO consumed_event (consumer_group, event_id, event_type, tenant_id, aggregate_type, aggregate_id,"
    " aggregate_version, outcome, topic, partition, position)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, 'APPLIED', ?, ?, ?)"
    " ON CONFLICT (consumer_group, event_id) DO NOTHING"
)
AGAIN = (
    "UPDATE consumed_event SET duplicates = duplicates + 1, last_duplicate_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
    " WHERE consumer_group = ? AND event_id = ?"
)


def consume(connection, group, event, handle, topic="", partition=0, position=0):
    """Runs handle(connection, event) once for each event id and group.

    Returns whether it ran. When handle raises, nothing is kept, neither its
    effect nor the id, and the exception goes on: deliver the event again, and
    those of its key not before it.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        first = connection.execute(FIRST, (
            group, event["eventId"], event.get("eventType", ""), event.get("tenantId", ""),
            event.get("aggregateType", ""), event.get("aggregateId", ""), event.get("aggregateVersion"),
            topic, partition, position,
        )).rowcount == 1
        if first:
            handle(connection, event)
        else:
            connection.execute(AGAIN, (group, event["eventId"]))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return first  # only now tell the broker


def reserve(connection, event):
    """The effect: nothing in it would stop a second one."""
    order = event["data"]["orderId"]
    changed = connection.execute("UPDATE reservation SET pieces = pieces + 1 WHERE order_id = ?", (order,)).rowcount
    if changed == 0:
        connection.execute("INSERT INTO reservation (order_id, pieces) VALUES (?, 1)", (order,))


def main(database, group):
    connection = sqlite3.connect(database, timeout=30, isolation_level=None)
    applied = duplicates = 0
    for position, line in enumerate(sys.stdin):
        # Numbers that are no integers stay exact: no float on the way.
        event = json.loads(line, parse_float=str)
        if consume(connection, group, event, reserve, position=position):
            applied += 1
        else:
            duplicates += 1
    connection.close()
    print(f"applied {applied}, duplicates {duplicates}")


if __name__ == "__main__":
    main(*sys.argv[1:])
