//! What was wrong once and must not be so again.

use std::os::unix::fs::PermissionsExt;

use super::open;

#[test]
fn the_log_of_the_database_is_its_owners_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (_store, _announced) = open(directory.path());
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let mode = directory.path().join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name} is open to others: {mode:o}");
    }
}
