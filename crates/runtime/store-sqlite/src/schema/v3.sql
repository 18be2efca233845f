-- What must be started for a run: 0 the ServerApp that it brings, 1 the native one.
ALTER TABLE run ADD COLUMN server_app INTEGER NOT NULL DEFAULT 0;

-- What native ServerApps tell of their rounds. JSON, never read here.
CREATE TABLE training_report (
    run_id INTEGER NOT NULL,
    round INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run_id, round, kind)
);

-- Which replies of a run are ready is asked with every one that arrives: the index alone answers.
DROP INDEX reply_of_run;
CREATE INDEX reply_of_run ON reply (run_id, ready, reply_to);
