//! A minimal FAB, so that a run can be started without an app on disk.

use trellis_wire::fab::{App, BadFab};
use trellis_wire::proto::Fab;

/// Never executed: the load generator plays both sides of the run.
pub fn build() -> Result<Fab, BadFab> {
    let mut app = App::without_files("load", "1.0.0", "load:client");
    app.set_server_app("load:server");
    Ok(app.bundle()?.fab)
}

#[cfg(test)]
mod tests {
    use trellis_wire::fab;

    use super::*;

    #[test]
    fn a_superlink_can_read_the_bundle() {
        let project = fab::pyproject(&build().unwrap().content).unwrap();
        assert_eq!(fab::metadata(&project).unwrap().name, "load");
        assert!(!fab::trains_natively(&project), "the load generator itself must get the run");
    }

    #[test]
    fn the_same_bundle_has_the_same_hash() {
        assert_eq!(build().unwrap().hash_str, build().unwrap().hash_str);
    }
}
