-- Ids of runs and nodes are unsigned 64-bit numbers, stored as signed ones. Times are Unix seconds.

CREATE TABLE node (
    node_id INTEGER PRIMARY KEY,
    public_key BLOB NOT NULL UNIQUE,
    owner_aid TEXT NOT NULL,
    owner_name TEXT NOT NULL,
    registered_at REAL NOT NULL,
    last_activated_at REAL,
    last_deactivated_at REAL,
    unregistered_at REAL,
    heartbeat_interval REAL NOT NULL,
    online_until REAL,
    state INTEGER NOT NULL
);
CREATE INDEX node_online ON node (online_until) WHERE state = 1;

CREATE TABLE run (
    run_id INTEGER PRIMARY KEY,
    fab_id TEXT NOT NULL,
    fab_version TEXT NOT NULL,
    fab_hash TEXT NOT NULL,
    override_config BLOB NOT NULL,
    federation_options BLOB NOT NULL,
    federation TEXT NOT NULL,
    account TEXT NOT NULL,
    pending_at REAL NOT NULL,
    starting_at REAL,
    running_at REAL,
    finished_at REAL,
    launches INTEGER NOT NULL,
    clientapp_runtime REAL NOT NULL,
    state INTEGER NOT NULL,
    outcome INTEGER,
    details TEXT NOT NULL
);
CREATE INDEX run_unfinished ON run (pending_at) WHERE state < 3;

-- Separate from the run, because it changes with every object.
CREATE TABLE traffic (
    run_id INTEGER PRIMARY KEY,
    bytes_sent INTEGER NOT NULL,
    bytes_received INTEGER NOT NULL
);

CREATE TABLE run_log (
    run_id INTEGER NOT NULL,
    at REAL NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (run_id, at)
) WITHOUT ROWID;

CREATE TABLE context (run_id INTEGER PRIMARY KEY, content BLOB NOT NULL);

CREATE TABLE fab (hash TEXT PRIMARY KEY, content BLOB NOT NULL, verifications BLOB NOT NULL);

CREATE TABLE token (
    run_id INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    state INTEGER NOT NULL,
    until REAL NOT NULL
);

CREATE TABLE instruction (
    seq INTEGER PRIMARY KEY,
    message_id BLOB NOT NULL UNIQUE,
    run_id INTEGER NOT NULL,
    src INTEGER NOT NULL,
    dst INTEGER NOT NULL,
    group_id TEXT NOT NULL,
    ttl REAL NOT NULL,
    message_type TEXT NOT NULL,
    created_at REAL NOT NULL,
    error_code INTEGER,
    error_reason TEXT,
    deliveries INTEGER NOT NULL,
    state INTEGER NOT NULL
);
CREATE INDEX instruction_of_node ON instruction (dst, state);
CREATE INDEX instruction_of_run ON instruction (run_id);

CREATE TABLE reply (
    message_id BLOB PRIMARY KEY,
    reply_to BLOB NOT NULL UNIQUE,
    run_id INTEGER NOT NULL,
    src INTEGER NOT NULL,
    dst INTEGER NOT NULL,
    group_id TEXT NOT NULL,
    ttl REAL NOT NULL,
    message_type TEXT NOT NULL,
    created_at REAL NOT NULL,
    error_code INTEGER,
    error_reason TEXT,
    ready INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX reply_of_run ON reply (run_id);

CREATE TABLE object (
    object_id BLOB PRIMARY KEY,
    refs INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    here INTEGER NOT NULL,
    height INTEGER NOT NULL,
    tree_objects INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE object_child (
    parent BLOB NOT NULL,
    position INTEGER NOT NULL,
    child BLOB NOT NULL,
    PRIMARY KEY (parent, position)
) WITHOUT ROWID;
CREATE INDEX object_parent ON object_child (child);

-- Separate from the object, so that a change of its counters does not rewrite the content.
CREATE TABLE object_content (
    object_id BLOB NOT NULL UNIQUE,
    inline BLOB,
    file TEXT,
    bytes INTEGER NOT NULL
);

CREATE TABLE heart (one INTEGER PRIMARY KEY CHECK (one = 1), alive_at REAL NOT NULL);
