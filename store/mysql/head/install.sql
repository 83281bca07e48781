CREATE TRIGGER IF NOT EXISTS {head_trigger} AFTER INSERT ON {event} FOR EACH ROW
{head_insert}
SELECT NEW.tenant_id, NEW.aggregate_type, NEW.aggregate_id, NEW.aggregate_version, NEW.event_id, NEW.id, NEW.event_type,
       NEW.payload, NEW.created_at
FROM DUAL WHERE NEW.aggregate_version > 0
{head_newer};
