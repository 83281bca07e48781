-- The view of the migration, but for what counts as queued.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {status} AS
SELECT e.id, e.event_id, e.tenant_id, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.event_type,
       e.event_version, e.topic, e.event_key, e.payload, e.content_type, e.headers, e.occurred_at, e.created_at,
       COALESCE(p.status, r.outcome, 'PENDING') AS status,
       {queued} AS queued,
       COALESCE(p.retry_count, 0) AS retry_count,
       p.next_retry_at,
       CASE WHEN p.id IS NULL THEN r.published_at END AS published_at
FROM {event} e
LEFT JOIN {pending} p ON p.id = e.id
LEFT JOIN {receipt} r ON r.id = e.id;
