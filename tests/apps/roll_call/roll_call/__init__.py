"""An app that asks all nodes and counts the answers; what the nodes answer is theirs."""
