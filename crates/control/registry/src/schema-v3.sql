-- Names of the tokens with which runs were started. The SuperLink knows only the account of the control plane.
CREATE TABLE run_starter (
    federation TEXT NOT NULL,
    run        TEXT NOT NULL,
    name       TEXT NOT NULL,
    PRIMARY KEY (federation, run)
) STRICT;
