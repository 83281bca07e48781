-- Six loans, at most one fault each.
CREATE TABLE biz_loan (
  loan_id    {text} NOT NULL PRIMARY KEY,
  book_id    {text} NOT NULL,
  status     {text} NOT NULL,
  version    INTEGER NOT NULL,
  updated_at {time} NOT NULL
);

CREATE TABLE outbox (
  event_id   {text} NOT NULL PRIMARY KEY,
  loan_id    {text} NOT NULL,
  event_type {text} NOT NULL,
  status     {text} NOT NULL,
  version    INTEGER NOT NULL,
  state      {text} NOT NULL,
  created_at {time} NOT NULL
);

CREATE INDEX outbox_by_loan ON outbox (loan_id, version);

CREATE TABLE read_model_loan (
  loan_id       {text} NOT NULL PRIMARY KEY,
  status        {text} NOT NULL,
  version       INTEGER NOT NULL,
  last_event_id {text} NOT NULL,
  updated_at    {time} NOT NULL
);

-- L-1003 was deleted by hand, L-1004 was edited.
INSERT INTO biz_loan (loan_id, book_id, status, version, updated_at) VALUES
  ('L-1001', 'B-201', 'RETURNED', 2, {ago 120}),
  ('L-1002', 'B-202', 'RETURNED', 2, {ago 120}),
  ('L-1004', 'B-204', 'OVERDUE',  2, {ago 60}),
  ('L-1005', 'B-205', 'ON_LOAN',  1, {ago 2}),
  ('L-1006', 'B-206', 'RETURNED', 2, {ago 120});

-- The second event of L-1002 was never written, that of L-1005 waits.
INSERT INTO outbox (event_id, loan_id, event_type, status, version, state, created_at) VALUES
  ('E-1001-1', 'L-1001', 'loan.created',  'ON_LOAN',  1, 'SENT',    {ago 180}),
  ('E-1001-2', 'L-1001', 'loan.returned', 'RETURNED', 2, 'SENT',    {ago 120}),
  ('E-1002-1', 'L-1002', 'loan.created',  'ON_LOAN',  1, 'SENT',    {ago 180}),
  ('E-1003-1', 'L-1003', 'loan.created',  'ON_LOAN',  1, 'SENT',    {ago 180}),
  ('E-1004-1', 'L-1004', 'loan.returned', 'RETURNED', 2, 'SENT',    {ago 120}),
  ('E-1005-1', 'L-1005', 'loan.created',  'ON_LOAN',  1, 'PENDING', {ago 2}),
  ('E-1006-1', 'L-1006', 'loan.created',  'ON_LOAN',  1, 'SENT',    {ago 180}),
  ('E-1006-2', 'L-1006', 'loan.returned', 'RETURNED', 2, 'SENT',    {ago 120});

-- L-1006 was edited.
INSERT INTO read_model_loan (loan_id, status, version, last_event_id, updated_at) VALUES
  ('L-1001', 'RETURNED', 2, 'E-1001-2', {ago 120}),
  ('L-1002', 'ON_LOAN',  1, 'E-1002-1', {ago 180}),
  ('L-1003', 'ON_LOAN',  1, 'E-1003-1', {ago 180}),
  ('L-1004', 'RETURNED', 2, 'E-1004-1', {ago 120}),
  ('L-1006', 'OVERDUE',  2, 'E-1006-2', {ago 60});
