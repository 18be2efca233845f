CREATE TABLE federation (
    name       TEXT PRIMARY KEY,
    -- Canonical YAML.
    document   TEXT NOT NULL,
    revision   INTEGER NOT NULL,
    -- 1: nothing of it is to be left.
    leaving    INTEGER NOT NULL DEFAULT 0,
    changed_ms INTEGER NOT NULL,
    -- JSON; NULL: nobody has planned yet.
    ledger     TEXT,
    status     TEXT
) STRICT;

-- Stays when its federation goes: drivers remember fences.
CREATE TABLE lease (
    name     TEXT PRIMARY KEY,
    fence    INTEGER NOT NULL,
    -- NULL: given back.
    holder   TEXT,
    until_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE token (
    id         TEXT PRIMARY KEY,
    sha256     BLOB NOT NULL UNIQUE,
    name       TEXT NOT NULL,
    role       TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER
) STRICT;

-- Answers to writes that may be repeated.
CREATE TABLE answer (
    caller TEXT NOT NULL,
    key    TEXT NOT NULL,
    answer TEXT NOT NULL,
    at_ms  INTEGER NOT NULL,
    PRIMARY KEY (caller, key)
) STRICT;
CREATE INDEX answer_by_age ON answer (at_ms);
