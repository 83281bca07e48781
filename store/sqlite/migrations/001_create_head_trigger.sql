CREATE TRIGGER {event_head} AFTER INSERT ON {event} WHEN NEW.aggregate_version > 0 BEGIN
  DELETE FROM {head}
  WHERE aggregate_id = NEW.aggregate_id AND aggregate_type = NEW.aggregate_type AND tenant_id = NEW.tenant_id
    AND aggregate_version < NEW.aggregate_version;
  INSERT INTO {head} (tenant_id, aggregate_type, aggregate_id, aggregate_version, event_id, outbox_id, event_type, payload, created_at)
  SELECT NEW.tenant_id, NEW.aggregate_type, NEW.aggregate_id, NEW.aggregate_version, NEW.event_id, NEW.id, NEW.event_type,
         NEW.payload, NEW.created_at
  WHERE NOT EXISTS (SELECT 1 FROM {head}
                    WHERE aggregate_id = NEW.aggregate_id AND aggregate_type = NEW.aggregate_type AND tenant_id = NEW.tenant_id);
END;
