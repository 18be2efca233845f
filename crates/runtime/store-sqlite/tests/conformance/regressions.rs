//! Regressions.

use std::os::unix::fs::PermissionsExt;

use super::open;

#[test]
fn only_the_owner_can_read_the_log_of_the_database() {
    let directory = tempfile::tempdir().unwrap();
    let (_store, _announced) = open(directory.path());
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let mode = directory.path().join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name} is accessible to others: {mode:o}");
    }
}
