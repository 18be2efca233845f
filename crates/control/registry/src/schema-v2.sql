-- Sites as the last document had them that named them: what is left at one needs its driver.
CREATE TABLE site (
    federation TEXT NOT NULL,
    name       TEXT NOT NULL,
    -- JSON.
    site       TEXT NOT NULL,
    PRIMARY KEY (federation, name)
) STRICT;
