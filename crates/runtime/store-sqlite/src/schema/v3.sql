-- The ServerApp of a run: 0 that of its FAB, 1 the native one.
ALTER TABLE run ADD COLUMN server_app INTEGER NOT NULL DEFAULT 0;

-- Training reports of native ServerApps, as opaque JSON.
CREATE TABLE training_report (
    run_id INTEGER NOT NULL,
    round INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, round, kind)
);

-- A covering index: the ready replies of a run are queried with every arriving reply.
DROP INDEX reply_of_run;
CREATE INDEX reply_of_run ON reply (run_id, ready, reply_to);
