-- Flower 1.30 and later: the sending and the receiving task of a message.
ALTER TABLE instruction ADD COLUMN src_task INTEGER;
ALTER TABLE instruction ADD COLUMN dst_task INTEGER;
ALTER TABLE reply ADD COLUMN src_task INTEGER;
ALTER TABLE reply ADD COLUMN dst_task INTEGER;

-- Client releases of nodes and ServerApps; names and locations from the owners of nodes.
ALTER TABLE node ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN location TEXT NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN client TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN client TEXT NOT NULL DEFAULT '';

-- Queried every second.
CREATE INDEX instruction_expiry ON instruction (created_at + ttl) WHERE state <> 5;

-- Numbers are unique and without gaps: only the oldest entries are deleted.
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    event TEXT NOT NULL,
    actor TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
);

CREATE TABLE account (
    account_id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created_at REAL NOT NULL,
    role INTEGER NOT NULL,
    state INTEGER NOT NULL
) WITHOUT ROWID;

-- Hashes of access, refresh and join tokens.
CREATE TABLE secret (
    hash BLOB PRIMARY KEY,
    purpose INTEGER NOT NULL,
    account_id TEXT NOT NULL,
    label TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL,
    state INTEGER NOT NULL,
    changed_at REAL,
    node_id INTEGER
) WITHOUT ROWID;
CREATE INDEX secret_of_account ON secret (account_id);
CREATE INDEX secret_end ON secret (coalesce(changed_at, expires_at));

-- Small covering indexes for the census. Heartbeats change only the first.
DROP INDEX node_online;
CREATE INDEX node_online ON node (online_until, client) WHERE state = 1;
CREATE INDEX node_at_rest ON node (state) WHERE state IN (0, 2);
CREATE INDEX run_finished ON run (outcome) WHERE state = 3;
DROP INDEX reply_of_run;
CREATE INDEX reply_of_run ON reply (run_id, ready);
CREATE INDEX object_size ON object_content (bytes);
