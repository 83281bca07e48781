-- The triggers run with the rights of the account that made them, so that a
-- producer needs no more than INSERT on the events.
CREATE TRIGGER IF NOT EXISTS {key_trigger} BEFORE INSERT ON {event} FOR EACH ROW
SET NEW.event_key = COALESCE(NULLIF(NEW.event_key, ''), NEW.aggregate_id);

CREATE TRIGGER IF NOT EXISTS {queue_trigger} AFTER INSERT ON {event} FOR EACH ROW
INSERT INTO {pending} (id, lane, key_hash, topic_hash)
VALUES (NEW.id, {new_lane}, {new_key_hash}, {new_topic_hash})
{reset};
