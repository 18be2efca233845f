//! An app before it is bundled: read from a directory as `flwr build` does, or an app of Trellis without files. Its
//! ServerApp can be replaced, and keys can be added to its configuration; nothing else changes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Read};
use std::path::Path;

use bytes::Bytes;
use toml::{Table, Value};
use trellis_digest::sha256_hex;

use super::archive::Archive;
use super::{
    BadFab, CONFIG, Config, FabMetadata, NATIVE_SERVER_APP, PYPROJECT, SIGNATURES_FILE, bad, config, contents, find,
    metadata, pyproject, text,
};
use crate::proto;

/// Maximum size of a bundle, as in Flower.
pub const MAX_BUNDLE_BYTES: usize = 10 << 20;
/// Maximum number of files and directories in one bundle.
pub const MAX_ENTRIES: usize = 10_000;
/// The directory of a bundle's manifest.
const ABOUT: &str = ".info/";
const COMPONENTS: &str = "tool.flwr.app.components";

#[derive(Debug, Clone)]
pub struct App {
    project: Table,
    files: Files,
}

/// The files of an app except `pyproject.toml`.
#[derive(Debug, Clone)]
enum Files {
    Unpacked(BTreeMap<String, Vec<u8>>),
    /// Packed. Most bundles are sent unchanged, so files are unpacked only to build another bundle.
    Packed(Bytes),
}

/// A complete FAB.
#[derive(Debug, Clone)]
pub struct Bundle {
    pub metadata: FabMetadata,
    pub fab: proto::Fab,
}

impl App {
    /// Reads the app in a directory.
    pub fn read(directory: &Path) -> Result<App, BadFab> {
        let path = directory.join(PYPROJECT);
        let unreadable = |path: &Path, error| bad(format!("{} cannot be read: {error}", path.display()));
        let written = fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
        let mut project: Table = written.parse().map_err(|error| bad(format!("{}: {error}", path.display())))?;
        // Federations are not part of an app.
        if let Some(flwr) = table_at(&mut project, "tool.flwr") {
            flwr.remove("federations");
        }
        metadata(&project)?;
        for part in ["serverapp", "clientapp"] {
            let reference = find(&project, &format!("{COMPONENTS}.{part}")).and_then(Value::as_str);
            if !reference.is_some_and(|reference| reference.contains(':')) {
                return Err(bad(format!("{PYPROJECT} lacks {COMPONENTS}.{part}, of the form \"module:attribute\"")));
            }
        }
        config(&project)?;
        let mut files = BTreeMap::new();
        for (name, place) in contents::choose(directory, &project)? {
            let content = fs::read(&place).map_err(|error| unreadable(&place, error))?;
            files.insert(name, content);
        }
        Ok(App { project, files: Files::Unpacked(files) })
    }

    /// Reads the app of a bundle.
    pub fn open(fab: &[u8]) -> Result<App, BadFab> {
        let project = pyproject(fab)?;
        metadata(&project)?;
        config(&project)?;
        Ok(App { project, files: Files::Packed(Bytes::copy_from_slice(fab)) })
    }

    /// Makes an app without files, whose ClientApp is part of the SuperNode, like `trellis:mlp`.
    pub fn without_files(name: &str, version: &str, client_app: &str) -> App {
        let text = format!(
            "[build-system]\nrequires = ['hatchling']\nbuild-backend = 'hatchling.build'\n\
             [project]\nname = '{name}'\nversion = '{version}'\ndescription = ''\nlicense = 'Apache-2.0'\n\
             dependencies = []\n[tool.flwr.app]\npublisher = 'trellis'\n\
             [{COMPONENTS}]\nserverapp = '{NATIVE_SERVER_APP}'\nclientapp = '{client_app}'\n[{CONFIG}]\n"
        );
        App { project: text.parse().expect("names of our own apps are plain"), files: Files::Unpacked(BTreeMap::new()) }
    }

    /// Replaces the app's ServerApp, usually with the native one.
    pub fn set_server_app(&mut self, reference: &str) {
        let components = table_at(&mut self.project, COMPONENTS).expect("it was checked when the app was read");
        components.insert("serverapp".to_owned(), reference.into());
    }

    /// Returns whether the app has a signatures file.
    pub fn is_signed(&self) -> bool {
        match &self.files {
            Files::Unpacked(files) => files.contains_key(SIGNATURES_FILE),
            Files::Packed(fab) => zip::ZipArchive::new(Cursor::new(fab))
                .is_ok_and(|archive| archive.index_for_name(SIGNATURES_FILE).is_some()),
        }
    }

    /// Removes the signatures file: the result is the app that the signatures cover.
    pub fn without_signatures(self) -> Result<App, BadFab> {
        let mut files = match self.files {
            Files::Unpacked(files) => files,
            Files::Packed(fab) => unpack(&fab)?,
        };
        files.remove(SIGNATURES_FILE);
        Ok(App { project: self.project, files: Files::Unpacked(files) })
    }

    pub fn trains_natively(&self) -> bool {
        super::trains_natively(&self.project)
    }

    /// Returns the configuration keys of the app with their defaults.
    pub fn config(&self) -> Config {
        config(&self.project).expect("it was checked when the app was read")
    }

    /// Adds a configuration key. Official nodes refuse a run that sets a key which its app lacks.
    pub fn add_key(&mut self, key: &str, value: Value) {
        if table_at(&mut self.project, CONFIG).is_none() {
            let app = table_at(&mut self.project, "tool.flwr.app").expect("an app has a publisher in there");
            app.insert("config".to_owned(), Value::Table(Table::new()));
        }
        let config = table_at(&mut self.project, CONFIG).expect("it was made where it was missing");
        config.insert(key.to_owned(), value);
    }

    pub fn bundle(&self) -> Result<Bundle, BadFab> {
        let project = text::write(&self.project);
        let files = match &self.files {
            Files::Unpacked(files) => Cow::Borrowed(files),
            Files::Packed(fab) => Cow::Owned(unpack(fab)?),
        };
        let listed = std::iter::once((PYPROJECT, project.as_bytes()))
            .chain(files.iter().map(|(name, content)| (name.as_str(), content.as_slice())));
        let mut archive = Archive::default();
        let mut list = Vec::new();
        for (name, content) in listed {
            archive.add(name, content);
            list.push(format!("{name},{},{}", sha256_hex(content), content.len() * 8));
        }
        archive.add(&format!("{ABOUT}CONTENT"), list.join("\n").as_bytes());
        let content = Bytes::from(archive.finish());
        if content.len() > MAX_BUNDLE_BYTES {
            let what = format!("it has {} bytes, and {MAX_BUNDLE_BYTES} are the limit", content.len());
            return Err(bad(format!("{what}; leave files out with .gitignore, or fab-exclude in [tool.flwr.app]")));
        }
        let metadata = metadata(&self.project)?;
        let fab = proto::Fab { hash_str: sha256_hex(&content), content, verifications: Default::default() };
        Ok(Bundle { metadata, fab })
    }
}

impl Bundle {
    /// Wraps an existing FAB without changes.
    pub fn of(fab: &[u8]) -> Result<Bundle, BadFab> {
        if fab.len() > MAX_BUNDLE_BYTES {
            return Err(bad(format!("it has {} bytes, and {MAX_BUNDLE_BYTES} are the limit", fab.len())));
        }
        let metadata = metadata(&pyproject(fab)?)?;
        let content = Bytes::copy_from_slice(fab);
        let fab = proto::Fab { hash_str: sha256_hex(&content), content, verifications: Default::default() };
        Ok(Bundle { metadata, fab })
    }
}

/// Unpacks the files of a bundle without its manifest, which the next bundle generates again. Counts bytes while
/// unpacking, because the sizes in the archive may be wrong: memory use never exceeds the limit of a bundle.
fn unpack(fab: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, BadFab> {
    let unreadable = |error: &dyn std::fmt::Display| bad(format!("it cannot be taken apart ({error})"));
    let mut archive = zip::ZipArchive::new(Cursor::new(fab)).map_err(|error| unreadable(&error))?;
    if archive.len() > MAX_ENTRIES {
        return Err(bad(format!("it holds {} files, and {MAX_ENTRIES} are allowed", archive.len())));
    }
    let mut files = BTreeMap::new();
    let mut left = MAX_BUNDLE_BYTES as u64;
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).map_err(|error| unreadable(&error))?;
        let name = file.name().map_err(|error| unreadable(&error))?.into_owned();
        if name == PYPROJECT || name.starts_with(ABOUT) || file.is_dir() {
            continue;
        }
        let mut content = Vec::new();
        // Reads one byte more than allowed, to detect a file that is too long.
        file.by_ref().take(left + 1).read_to_end(&mut content).map_err(|error| unreadable(&error))?;
        left = left
            .checked_sub(content.len() as u64)
            .ok_or_else(|| bad(format!("unpacked it has more than {MAX_BUNDLE_BYTES} bytes")))?;
        files.insert(name, content);
    }
    Ok(files)
}

fn table_at<'a>(project: &'a mut Table, path: &str) -> Option<&'a mut Table> {
    path.split('.').try_fold(project, |table, key| table.get_mut(key)?.as_table_mut())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::fab::pyproject;
    use crate::proto::scalar::Scalar;

    const PROJECT: &str = "[project]\nname='app'\nversion='1.2'\n[tool.flwr.app]\npublisher='me'\n\
        [tool.flwr.app.components]\nserverapp='a.s:app'\nclientapp='a.c:app'\n[tool.flwr.federations]\ndefault='x'\n";

    fn directory(project: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(PYPROJECT), project).unwrap();
        fs::create_dir(directory.path().join("a")).unwrap();
        fs::write(directory.path().join("a/c.py"), "app = None\n").unwrap();
        directory
    }

    #[test]
    fn an_app_is_bundled_with_its_files_and_without_federations() {
        let directory = directory(PROJECT);
        let Bundle { metadata, fab } = App::read(directory.path()).unwrap().bundle().unwrap();
        assert_eq!((metadata.id().as_str(), metadata.version.as_str()), ("me/app", "1.2"));
        assert_eq!(fab.hash_str, sha256_hex(&fab.content));
        let mut archive = zip::ZipArchive::new(std::io::Cursor::new(&fab.content)).unwrap();
        let names: Vec<String> = archive.file_names().map(|name| name.unwrap().into_owned()).collect();
        assert_eq!(names, ["pyproject.toml", "a/c.py", ".info/CONTENT"]);
        let list = std::io::read_to_string(archive.by_name(".info/CONTENT").unwrap()).unwrap();
        assert!(list.ends_with(&format!("\na/c.py,{},88", sha256_hex(b"app = None\n"))), "{list}");
        let project = pyproject(&fab.content).unwrap();
        assert!(find(&project, "tool.flwr.federations").is_none() && find(&project, "tool.flwr.app").is_some());
        assert!(!crate::fab::trains_natively(&project));
    }

    #[test]
    fn the_serverapp_is_replaced_and_keys_are_added() {
        let directory = directory(PROJECT);
        let mut app = App::read(directory.path()).unwrap();
        app.set_server_app(NATIVE_SERVER_APP);
        app.add_key("num-server-rounds", Value::Integer(3));
        assert!(app.trains_natively());
        let project = pyproject(&app.bundle().unwrap().fab.content).unwrap();
        assert!(crate::fab::trains_natively(&project));
        assert_eq!(find(&project, "tool.flwr.app.components.clientapp").unwrap().as_str(), Some("a.c:app"));
        let rounds = proto::Scalar { scalar: Some(Scalar::Sint64(3)) };
        assert_eq!(config(&project).unwrap(), [("num-server-rounds".to_owned(), rounds)].into());
    }

    #[test]
    fn an_app_without_files_is_complete() {
        let bundle = App::without_files("mlp", "0.1.0", "trellis:mlp").bundle().unwrap();
        assert_eq!(bundle.metadata.id(), "trellis/mlp");
        let project = pyproject(&bundle.fab.content).unwrap();
        assert_eq!(find(&project, "tool.flwr.app.components.clientapp").unwrap().as_str(), Some("trellis:mlp"));
        assert!(crate::fab::trains_natively(&project));
    }

    /// A compressed bundle.
    fn packed(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        for (name, content) in std::iter::once((PYPROJECT.to_owned(), PROJECT.into())).chain(files) {
            zip.start_file(name, options).unwrap();
            zip.write_all(&content).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    #[test]
    fn a_bundle_is_unpacked_only_for_another_one_and_within_limits() {
        let sound = packed([("a/c.py".to_owned(), b"app = None\n".to_vec())]);
        let mut app = App::open(&sound).unwrap();
        app.add_key("lr", Value::Integer(1));
        let again = unpack(&app.bundle().unwrap().fab.content).unwrap();
        assert_eq!(again, [("a/c.py".to_owned(), b"app = None\n".to_vec())].into());

        let bomb = packed((0..3).map(|number| (format!("{number}.bin"), vec![0; MAX_BUNDLE_BYTES / 2])));
        assert!(bomb.len() < MAX_BUNDLE_BYTES / 100, "{}", bomb.len());
        let crowd = packed((0..MAX_ENTRIES).map(|number| (number.to_string(), Vec::new())));
        for (bundle, expected) in [(bomb, "unpacked it has more than"), (crowd, "it holds 10001 files")] {
            // An unchanged bundle is not unpacked.
            let app = App::open(&bundle).unwrap();
            let problem = app.bundle().unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn invalid_apps_are_refused() {
        let nowhere = App::read(Path::new("/nowhere/app")).unwrap_err().to_string();
        assert!(nowhere.contains("/nowhere/app/pyproject.toml cannot be read"), "{nowhere}");
        for (project, expected) in [
            ("= =".to_owned(), "pyproject.toml: "),
            ("[project]\nname='app'".to_owned(), "lacks project.version, tool.flwr.app.publisher"),
            (PROJECT.replace("a.c:app", "app"), "lacks tool.flwr.app.components.clientapp"),
            (format!("{PROJECT}[tool.flwr.app.config]\na=[1]"), "a in [tool.flwr.app.config] is of type array"),
        ] {
            let problem = App::read(directory(&project).path()).unwrap_err().to_string();
            assert!(problem.contains(expected), "{problem}");
        }
        let large = directory(PROJECT);
        fs::write(large.path().join("large.md"), vec![b'x'; MAX_BUNDLE_BYTES]).unwrap();
        let problem = App::read(large.path()).unwrap().bundle().unwrap_err().to_string();
        assert!(problem.contains("are the limit"), "{problem}");
    }
}
