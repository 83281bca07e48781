-- Six loans, at most one fault each.
CREATE TABLE biz_loan (
  loan_id    TEXT NOT NULL PRIMARY KEY,
  book_id    TEXT NOT NULL,
  status     TEXT NOT NULL,
  version    INTEGER NOT NULL,
  updated_at TEXT NOT NULL
);

CREATE TABLE outbox (
  event_id   TEXT NOT NULL PRIMARY KEY,
  loan_id    TEXT NOT NULL,
  event_type TEXT NOT NULL,
  status     TEXT NOT NULL,
  version    INTEGER NOT NULL,
  state      TEXT NOT NULL,
  created_at TEXT NOT NULL
);

CREATE TABLE read_model_loan (
  loan_id       TEXT NOT NULL PRIMARY KEY,
  status        TEXT NOT NULL,
  version       INTEGER NOT NULL,
  last_event_id TEXT NOT NULL,
  updated_at    TEXT NOT NULL
);

-- L-1003 was deleted by hand, L-1004 was edited.
INSERT INTO biz_loan (loan_id, book_id, status, version, updated_at) VALUES
  ('L-1001', 'B-201', 'RETURNED', 2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 hours')),
  ('L-1002', 'B-202', 'RETURNED', 2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 hours')),
  ('L-1004', 'B-204', 'OVERDUE',  2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-1 hours')),
  ('L-1005', 'B-205', 'ON_LOAN',  1, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 minutes')),
  ('L-1006', 'B-206', 'RETURNED', 2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 hours'));

-- The second event of L-1002 was never written; that of L-1005 waits.
INSERT INTO outbox (event_id, loan_id, event_type, status, version, state, created_at) VALUES
  ('E-1001-1', 'L-1001', 'loan.created',  'ON_LOAN',  1, 'SENT',    strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-3 hours')),
  ('E-1001-2', 'L-1001', 'loan.returned', 'RETURNED', 2, 'SENT',    strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 hours')),
  ('E-1002-1', 'L-1002', 'loan.created',  'ON_LOAN',  1, 'SENT',    strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-3 hours')),
  ('E-1003-1', 'L-1003', 'loan.created',  'ON_LOAN',  1, 'SENT',    strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-3 hours')),
  ('E-1004-1', 'L-1004', 'loan.returned', 'RETURNED', 2, 'SENT',    strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 hours')),
  ('E-1005-1', 'L-1005', 'loan.created',  'ON_LOAN',  1, 'PENDING', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 minutes')),
  ('E-1006-1', 'L-1006', 'loan.created',  'ON_LOAN',  1, 'SENT',    strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-3 hours')),
  ('E-1006-2', 'L-1006', 'loan.returned', 'RETURNED', 2, 'SENT',    strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 hours'));

-- L-1006 was edited.
INSERT INTO read_model_loan (loan_id, status, version, last_event_id, updated_at) VALUES
  ('L-1001', 'RETURNED', 2, 'E-1001-2', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 hours')),
  ('L-1002', 'ON_LOAN',  1, 'E-1002-1', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-3 hours')),
  ('L-1003', 'ON_LOAN',  1, 'E-1003-1', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-3 hours')),
  ('L-1004', 'RETURNED', 2, 'E-1004-1', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 hours')),
  ('L-1006', 'OVERDUE',  2, 'E-1006-2', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-1 hours'));
