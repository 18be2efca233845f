-- Runs as they were last seen. They stay when their federation goes, until it is purged.
CREATE TABLE run (
    federation   TEXT NOT NULL,
    id           TEXT NOT NULL,
    submitted_ms INTEGER NOT NULL,
    -- JSON.
    run          TEXT NOT NULL,
    PRIMARY KEY (federation, id)
) STRICT;
CREATE INDEX run_by_age ON run (federation, submitted_ms);
-- 1: its runs go with it.
ALTER TABLE federation ADD COLUMN purge INTEGER NOT NULL DEFAULT 0;
