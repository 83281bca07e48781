CREATE TRIGGER {event_queue} AFTER INSERT ON {event} BEGIN
  UPDATE {event} SET event_key = aggregate_id WHERE id = NEW.id AND event_key = '';
  DELETE FROM {pending} WHERE id = NEW.id;
  INSERT INTO {pending} (id, lane, key_hash, topic_hash)
{queue_select};
END;
