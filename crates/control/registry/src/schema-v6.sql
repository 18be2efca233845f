-- Who signed in or was refused, and who changed the rights of others. `refused` entries are counted apart: anybody can cause them.
CREATE TABLE audit (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms   INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    event   TEXT NOT NULL,
    actor   TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail  TEXT NOT NULL
) STRICT;
