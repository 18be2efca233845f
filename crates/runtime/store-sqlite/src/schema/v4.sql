-- Objects and their edges get a scope: an announcement is valid for its sender in its run. Content stays shared. Existing
-- objects get the scopes of the messages that refer to them.
CREATE TEMP TABLE reached (object_id BLOB, run_id INTEGER, sender INTEGER, PRIMARY KEY (object_id, run_id, sender))
WITHOUT ROWID;
CREATE TEMP TABLE held AS
    SELECT message_id AS object_id, run_id, src AS sender FROM instruction
    UNION ALL SELECT message_id, run_id, src FROM reply;
INSERT INTO reached
WITH RECURSIVE below (object_id, run_id, sender) AS (
    SELECT object_id, run_id, sender FROM held
    UNION SELECT child, run_id, sender FROM below JOIN object_child ON parent = below.object_id
)
SELECT object_id, run_id, sender FROM below;

ALTER TABLE object RENAME TO old_object;
ALTER TABLE object_child RENAME TO old_child;
DROP INDEX object_parent;

CREATE TABLE object (
    object_id BLOB NOT NULL,
    run_id INTEGER NOT NULL,
    sender INTEGER NOT NULL,
    refs INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    here INTEGER NOT NULL,
    height INTEGER NOT NULL,
    tree_objects INTEGER NOT NULL,
    PRIMARY KEY (object_id, run_id, sender)
) WITHOUT ROWID;

CREATE TABLE object_child (
    parent BLOB NOT NULL,
    run_id INTEGER NOT NULL,
    sender INTEGER NOT NULL,
    position INTEGER NOT NULL,
    child BLOB NOT NULL,
    PRIMARY KEY (parent, run_id, sender, position)
) WITHOUT ROWID;

INSERT INTO object_child
SELECT parent, run_id, sender, position, child FROM old_child JOIN reached ON object_id = parent;
CREATE INDEX object_parent ON object_child (child, run_id, sender);

INSERT INTO object
SELECT object_id, run_id, sender,
    (SELECT count(*) FROM object_child AS edge
     WHERE edge.child = object_id AND edge.run_id = reached.run_id AND edge.sender = reached.sender)
    + (SELECT count(*) FROM held
       WHERE held.object_id = reached.object_id AND held.run_id = reached.run_id AND held.sender = reached.sender),
    waiting, here, height, tree_objects
FROM reached JOIN old_object USING (object_id);

DELETE FROM object_content WHERE object_id NOT IN (SELECT object_id FROM object);
DROP TABLE old_object;
DROP TABLE old_child;
DROP TABLE held;
DROP TABLE reached;
