-- Nodes that joined from elsewhere and are kept from new work. Those of pools stand in the document.
CREATE TABLE drained_node (
    federation TEXT NOT NULL,
    node       TEXT NOT NULL,
    PRIMARY KEY (federation, node)
) STRICT;
