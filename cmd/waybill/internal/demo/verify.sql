-- What became of the demo's events, counted in its two databases.
-- In the folder of the files:  sqlite3 orders.db < verify.sql

ATTACH 'inventory.db' AS inventory;

-- Orders that exist.
SELECT 'orders', count(*) FROM orders;

-- Facts in the outbox: each was written in the transaction of its order.
SELECT 'events', count(*) FROM outbox_event;

-- Events whose effect is in the inventory.
SELECT 'applied', count(*) FROM inventory.consumed_event WHERE outcome = 'APPLIED';

-- Events that the inventory cannot apply and keeps for a person.
SELECT 'dead', count(*) FROM inventory.held_event WHERE state = 'DEAD';

-- Business transactions that were rolled back with their event.
SELECT 'rolled_back', count(*) FROM refused_order;

-- Deliveries beyond the first that had no effect.
SELECT 'duplicates_absorbed', coalesce(sum(duplicates), 0) FROM inventory.consumed_event;

-- Events that are neither applied nor visibly held.
SELECT 'lost', count(*) FROM outbox_event e
WHERE NOT EXISTS (SELECT 1 FROM inventory.consumed_event c WHERE c.event_id = e.event_id AND c.outcome = 'APPLIED')
  AND NOT EXISTS (SELECT 1 FROM inventory.held_event h WHERE h.event_id = e.event_id);

-- Effects of an order that came after the effect of a later version.
SELECT 'order_violations', count(*) FROM (
  SELECT version, max(version) OVER (PARTITION BY order_id ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier
  FROM inventory.inventory_effect) AS effect
WHERE version < earlier;

-- Events with more than one effect.
SELECT 'double_effects', count(*) FROM (SELECT event_id FROM inventory.inventory_effect GROUP BY event_id HAVING count(*) > 1) AS effect;

-- Relay processes that were ended with SIGKILL, and outages of the broker.
SELECT 'relay_kills', count(*) FROM demo_incident WHERE kind = 'relay kill';
SELECT 'broker_outages', count(*) FROM demo_incident WHERE kind = 'broker outage';

-- Events without their order, orders without one event per version, and
-- effects without an event: traces of something that was rolled back.
SELECT 'phantoms',
  (SELECT count(*) FROM outbox_event e WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.order_id = e.aggregate_id AND o.version >= e.aggregate_version))
  + (SELECT count(*) FROM orders o WHERE o.version <> (SELECT count(*) FROM outbox_event e WHERE e.aggregate_id = o.order_id))
  + (SELECT count(*) FROM inventory.inventory_effect f WHERE NOT EXISTS (SELECT 1 FROM outbox_event e WHERE e.event_id = f.event_id));

-- Orders that the read model shows otherwise, but for those with a held event.
SELECT 'read_model_differences', count(*) FROM orders o LEFT JOIN inventory.inventory_order r ON r.order_id = o.order_id
WHERE (r.order_id IS NULL OR r.version <> o.version OR r.status <> o.status OR r.qty <> o.qty OR r.product <> o.product)
  AND NOT EXISTS (SELECT 1 FROM inventory.held_event h WHERE h.aggregate_id = o.order_id);

-- Events still in the queue.
SELECT 'unsettled', count(*) FROM outbox_pending;
