DROP TRIGGER IF EXISTS {head_trigger};

DROP TRIGGER IF EXISTS {queue_trigger};

DROP TRIGGER IF EXISTS {key_trigger};
