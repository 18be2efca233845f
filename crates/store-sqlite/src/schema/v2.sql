-- Flower 1.30 and later: the tasks between which a message goes.
ALTER TABLE instruction ADD COLUMN src_task INTEGER;
ALTER TABLE instruction ADD COLUMN dst_task INTEGER;
ALTER TABLE reply ADD COLUMN src_task INTEGER;
ALTER TABLE reply ADD COLUMN dst_task INTEGER;

-- Who speaks what: what nodes and ServerApps say of themselves, and what owners say of their nodes.
ALTER TABLE node ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN location TEXT NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN client TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN client TEXT NOT NULL DEFAULT '';

-- Looked for every second.
CREATE INDEX instruction_expiry ON instruction (created_at + ttl) WHERE state <> 5;
