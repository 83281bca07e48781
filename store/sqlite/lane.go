package sqlite

// queueHead, a source and queueTail compute lane, key_hash and topic_hash of
// the events that the source of (id, event_key, topic) yields. It has to run in any SQLite shell,
// inside a trigger, so it is made of core functions alone.
//
// The hexadecimal text of hexadecimal text consists of decimal digits, four for
// each byte: that is how bytes become integers here, eighteen digits at a time.
// They are folded into two polynomial hashes with different prime moduli below
// 2^31, so that no intermediate value passes 2^63; a and b are those of the key,
// c and d those of the topic. The lane depends on the key only.
//
// Stored rows carry these values: another function means another value of
// lane_function in waybill_meta, and a migration.
const (
	queueHead = `  SELECT id, (a * 1103515245 + b) % 2147483647 / 4096 % 64,
         (a * 48271 + c) % 2147483647 * 2147483648 + (b * 69621 + d) % 2147483629,
         c * 2147483648 + d
  FROM (
    WITH RECURSIVE fold (id, k, t, a, b, c, d) AS (
      SELECT id, hex(hex(event_key)), hex(hex(topic)), 1, 1, 1, 1 FROM (`
	queueTail = `)
      UNION ALL
      SELECT id, substr(k, 19), substr(t, 19),
             CASE k WHEN '' THEN a ELSE (a * 1664525069 + CAST(substr(k, 1, 18) AS INTEGER)) % 2147483647 END,
             CASE k WHEN '' THEN b ELSE (b * 1013904223 + CAST(substr(k, 1, 18) AS INTEGER)) % 2147483629 END,
             CASE t WHEN '' THEN c ELSE (c * 1664525069 + CAST(substr(t, 1, 18) AS INTEGER)) % 2147483647 END,
             CASE t WHEN '' THEN d ELSE (d * 1013904223 + CAST(substr(t, 1, 18) AS INTEGER)) % 2147483629 END
      FROM fold WHERE k <> '' OR t <> ''
    )
    SELECT id, a, b, c, d FROM fold WHERE k = '' AND t = ''
  )`
)

const (
	// sourceInserted is the row that fired the trigger.
	sourceInserted = `SELECT NEW.id AS id, NEW.topic AS topic, CASE NEW.event_key WHEN '' THEN NEW.aggregate_id ELSE NEW.event_key END AS event_key`
	// sourceListed are the events whose ids a JSON array lists.
	sourceListed = `SELECT id, topic, CASE event_key WHEN '' THEN aggregate_id ELSE event_key END AS event_key FROM {event} WHERE id IN (SELECT value FROM json_each(?1))`

	queueInserted = queueHead + sourceInserted + queueTail
	queueListed   = queueHead + sourceListed + queueTail
)
