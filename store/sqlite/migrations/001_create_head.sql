-- The event of each aggregate's highest version, whole, so that it outlives the
-- facts.
CREATE TABLE IF NOT EXISTS {head} (
  tenant_id         TEXT NOT NULL,
  aggregate_type    TEXT NOT NULL,
  aggregate_id      TEXT NOT NULL,
  aggregate_version INTEGER NOT NULL,
  event_id          TEXT NOT NULL,
  outbox_id         INTEGER NOT NULL,
  event_type        TEXT NOT NULL,
  payload           ANY NOT NULL,
  created_at        TEXT NOT NULL,
  PRIMARY KEY (aggregate_id, aggregate_type, tenant_id)
) STRICT;
