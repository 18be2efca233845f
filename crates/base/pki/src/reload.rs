//! Detects changes of the files in use, and checks the new ones. The server calls [`Reload::look`] from a timer; there is no
//! clock or thread here. The old certificate stays in use until a new one has passed the check.

use std::path::PathBuf;

use crate::UnixSeconds;
use crate::check::{Checked, Files, Stamp, examine, read};
use crate::endpoint::Endpoint;
use trellis_diagnostic::Diagnostic;

/// The result of a poll.
#[derive(Debug)]
pub enum Look {
    /// No change, and nothing new to report.
    Unchanged,
    /// Serve with this from now on.
    New(Box<Checked>),
    /// The files changed and cannot be used; the old ones stay in use. Reported once per change.
    Refused(Vec<Diagnostic>),
}

#[derive(Debug)]
pub struct Reload {
    files: Files,
    endpoints: Vec<Endpoint>,
    state_dir: Option<PathBuf>,
    /// Files are read only if these versions have changed.
    stamps: [Option<Stamp>; 3],
    /// Of the content in use.
    used: [u8; 32],
    /// The reported problems of the present, unused files.
    reported: Option<Vec<Diagnostic>>,
}

impl Reload {
    /// Reads and checks the files for the first time.
    pub fn start(
        files: Files,
        endpoints: Vec<Endpoint>,
        state_dir: Option<PathBuf>,
        now: UnixSeconds,
    ) -> Result<(Reload, Checked), Vec<Diagnostic>> {
        let contents = read(&files, state_dir.as_deref());
        let checked = examine(&contents, &endpoints, now)?;
        let (stamps, used) = (contents.stamps, contents.fingerprint());
        Ok((Reload { files, endpoints, state_dir, stamps, used, reported: None }, checked))
    }

    pub fn look(&mut self, now: UnixSeconds) -> Look {
        // Refused files are read at each poll: they may become valid with time.
        if self.reported.is_none() && Stamp::of(&self.files) == self.stamps {
            return Look::Unchanged;
        }
        let contents = read(&self.files, self.state_dir.as_deref());
        self.stamps = contents.stamps;
        let found = contents.fingerprint();
        if found == self.used {
            self.reported = None;
            return Look::Unchanged;
        }
        match examine(&contents, &self.endpoints, now) {
            Ok(checked) => {
                self.used = found;
                self.reported = None;
                Look::New(Box::new(checked))
            }
            Err(problems) if self.reported.as_ref() == Some(&problems) => Look::Unchanged,
            Err(problems) => {
                self.reported = Some(problems.clone());
                Look::Refused(problems)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::served::Served;
    use crate::testing::{DAY, EC, NOW, TestCa, between, client, converse, directory, endpoint, leaf_params, server};

    struct Desk {
        dir: tempfile::TempDir,
        ca: TestCa,
    }

    impl Desk {
        fn new() -> Desk {
            let desk = Desk { dir: directory(), ca: TestCa::new(EC) };
            desk.put("ca.crt", &desk.ca.made.certificate);
            desk.put_leaf(|_| {});
            desk
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn put(&self, name: &str, text: &str) {
            let new = self.path("new");
            fs::write(&new, text).expect("written");
            fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("mode");
            fs::rename(&new, self.path(name)).expect("in place");
        }

        fn put_leaf(&self, change: impl FnOnce(&mut rcgen::CertificateParams)) {
            let mut params = leaf_params();
            change(&mut params);
            let made = self.ca.sign(EC, &params);
            self.put("server.pem", &made.certificate);
            self.put("server.key", &made.key);
        }

        fn start(&self) -> (Reload, Checked) {
            let files =
                Files { certificate: self.path("server.pem"), key: self.path("server.key"), ca: self.path("ca.crt") };
            Reload::start(files, vec![endpoint("link.example.org")], None, NOW).expect("good files")
        }
    }

    fn refused(look: Look) -> Vec<String> {
        match look {
            Look::Refused(problems) => problems.into_iter().map(|problem| problem.what).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_new_pair_is_taken_once() {
        let desk = Desk::new();
        let (mut reload, first) = desk.start();
        assert!(matches!(reload.look(NOW), Look::Unchanged));
        desk.put_leaf(|_| {});
        match reload.look(NOW) {
            Look::New(checked) => assert_ne!(checked.leaf, first.leaf),
            other => panic!("{other:?}"),
        }
        assert!(matches!(reload.look(NOW), Look::Unchanged));
    }

    #[test]
    fn the_same_content_in_other_files_is_no_change() {
        let desk = Desk::new();
        let (mut reload, _) = desk.start();
        for name in ["server.pem", "server.key", "ca.crt"] {
            desk.put(name, &fs::read_to_string(desk.path(name)).expect("text"));
        }
        assert!(matches!(reload.look(NOW), Look::Unchanged));
    }

    #[test]
    fn a_change_in_place_of_equal_length_is_seen() {
        let desk = Desk::new();
        let (mut reload, _) = desk.start();
        let text = fs::read(desk.path("ca.crt")).expect("text");
        fs::write(desk.path("ca.crt"), vec![b'x'; text.len()]).expect("written");
        assert_eq!(refused(reload.look(NOW)), ["it holds no certificate in PEM"]);
    }

    #[test]
    fn bad_files_are_told_once_and_good_ones_are_taken_afterwards() {
        let desk = Desk::new();
        let (mut reload, _) = desk.start();
        let made = desk.ca.sign(EC, &leaf_params());
        desk.put("server.pem", &made.certificate);
        let what = "the key does not belong to the certificate O=An operator, CN=server";
        assert_eq!(refused(reload.look(NOW)), [what], "a new certificate without its key");
        assert!(matches!(reload.look(NOW), Look::Unchanged), "reported once");
        desk.put("server.key", &made.key);
        assert!(matches!(reload.look(NOW), Look::New(_)));

        fs::remove_file(desk.path("server.key")).expect("removed");
        assert_eq!(refused(reload.look(NOW)), ["it cannot be read: No such file or directory (os error 2)"]);
        desk.put("server.key", &made.key);
        assert!(matches!(reload.look(NOW), Look::Unchanged), "the files in use are restored");
        assert!(matches!(reload.look(NOW), Look::Unchanged));
    }

    #[test]
    fn the_clock_alone_can_make_a_pair_good() {
        let desk = Desk::new();
        let (mut reload, _) = desk.start();
        desk.put_leaf(|params| between(params, NOW + DAY, NOW + 9 * DAY));
        assert_eq!(refused(reload.look(NOW)).len(), 1);
        assert!(matches!(reload.look(NOW), Look::Unchanged));
        assert!(matches!(reload.look(NOW + 2 * DAY), Look::New(_)));
    }

    /// Open connections keep the old certificate; new ones get the new one.
    #[test]
    fn connections_survive_a_reload() {
        let desk = Desk::new();
        let trust = &desk.ca.made.certificate;
        let (mut reload, first) = desk.start();
        let served = Served::new(&first);
        let connect = || {
            let (mut client, mut server) = (client(trust, "link.example.org", NOW), server(Arc::new(served.clone())));
            converse(&mut client, &mut server).expect("a handshake");
            (client, server)
        };
        let (mut old_client, mut old_server) = connect();
        desk.put_leaf(|_| {});
        let Look::New(next) = reload.look(NOW) else { panic!("a new pair") };
        served.replace(&next);
        let (new_client, _) = connect();
        assert_eq!(new_client.peer_certificates().expect("certificates"), next.certificates);
        assert_eq!(old_client.peer_certificates().expect("certificates"), first.certificates);

        use std::io::{Read as _, Write as _};
        old_client.writer().write_all(b"still here").expect("written");
        converse(&mut old_client, &mut old_server).expect("carried");
        let mut heard = [0; 10];
        old_server.reader().read_exact(&mut heard).expect("read");
        assert_eq!(&heard, b"still here");
    }

    #[test]
    fn a_start_with_bad_files_names_them() {
        let missing = Files { certificate: "a".into(), key: "b".into(), ca: "c".into() };
        let dir = directory();
        let below = |path: &Path| dir.path().join(path);
        let files =
            Files { certificate: below(&missing.certificate), key: below(&missing.key), ca: below(&missing.ca) };
        let problems = Reload::start(files, Vec::new(), None, NOW).map(|_| ()).expect_err("the files are missing");
        assert_eq!(problems.len(), 3);
    }
}
