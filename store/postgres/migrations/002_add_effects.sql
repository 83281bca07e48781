-- Calls to systems outside of this database, so that each is made once in
-- effect: DOING until the answer is known.
CREATE TABLE IF NOT EXISTS {effect} (
    consumer_group  text COLLATE "C" NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    idempotent      boolean NOT NULL,
    state           text COLLATE "C" NOT NULL CHECK (state IN ('DOING', 'DONE')),
    owner           text COLLATE "C" NOT NULL,
    until           timestamptz NOT NULL,
    tries           integer NOT NULL DEFAULT 1,
    result          bytea,
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer_group, event_id, name)
);

-- The time up to which a group may have forgotten what it consumed.
CREATE TABLE IF NOT EXISTS {horizon} (
    consumer_group text COLLATE "C" PRIMARY KEY,
    horizon        timestamptz NOT NULL
);

-- forced: a person wants the event applied though its version is stale.
-- dlt_note: why its dead letter will not be sent.
ALTER TABLE {held}
    ADD COLUMN IF NOT EXISTS forced boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS dlt_note text COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX IF NOT EXISTS {held_unsent} ON {held} (consumer_group, seq) WHERE state = 'DEAD' AND dlt_sent_at IS NULL AND dlt_note = '';
