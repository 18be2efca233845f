//! Builds an image: a file tree, cleaned and checked for secrets, then a disk. Works in a temporary directory, and moves
//! complete files to their place. The decisions are in other modules.

mod base;
mod furnish;
mod partitions;
mod python;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use base::Base;

use crate::command::{CommandError, Run};
use crate::disk::{self, DiskError};
use crate::ext4::ScriptError;
use crate::metadata::{self, Contents};
use crate::recipe::{Framework, Recipe};
use crate::secrets::Finding;
use crate::tools::{self, Tool};
use crate::tree::TreeError;

const SHORT: Duration = Duration::from_secs(300);
const LONG: Duration = Duration::from_secs(3600);

/// Inputs of a build.
#[derive(Debug)]
pub struct Order {
    pub recipe: Recipe,
    pub base: Base,
    /// Our program, statically linked.
    pub program: PathBuf,
    pub context_package: Option<PathBuf>,
    /// Program that OpenNebula's appliance framework runs.
    pub hook: String,
    pub output: PathBuf,
    /// Cache of base trees and packages.
    pub cache: PathBuf,
    /// Upper limit of all times in the image, in seconds since 1970.
    pub epoch: i64,
    /// URL of images in the marketplace entry.
    pub publish_at: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("the image cannot be built:\n  {}", .0.join("\n  "))]
    Refused(Vec<String>),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("{} cannot be written or read", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("the image contains secrets:\n  {}", lines(.0))]
    Secrets(Vec<Finding>),
    #[error("debugfs failed:\n{0}")]
    Filling(String),
    #[error(
        "the compressed image has {bytes} bytes, and the limit is {budget}: remove packages, or build another kind"
    )]
    TooLarge { bytes: u64, budget: u64 },
}

fn lines(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::File { path, source }
}

/// Files of a finished build.
#[derive(Debug)]
pub struct Built {
    pub image: PathBuf,
    pub contents: Contents,
}

/// Directories of one build.
struct Site<'a> {
    order: &'a Order,
    tree: PathBuf,
    scratch: PathBuf,
}

impl Site<'_> {
    /// A program that sees the time of the image instead of the current one.
    fn run(&self, program: impl AsRef<std::ffi::OsStr>, limit: Duration) -> Run {
        let epoch = self.order.epoch.to_string();
        let path = std::env::join_paths(tools::search_path()).unwrap_or_default();
        Run::new(program, &self.scratch, limit)
            .env("SOURCE_DATE_EPOCH", &epoch)
            .env("E2FSPROGS_FAKE_TIME", &epoch)
            .env("PATH", path)
            .env("TZ", "UTC")
    }
}

/// `tell` receives the progress.
pub fn build(order: &Order, tell: &dyn Fn(&str)) -> Result<Built, BuildError> {
    let problems = objections(order);
    if !problems.is_empty() {
        return Err(BuildError::Refused(problems));
    }
    for directory in [&order.output, &order.cache] {
        fs::create_dir_all(directory).map_err(file(directory))?;
    }
    let work = tempfile::Builder::new().prefix(".image-").tempdir_in(&order.output).map_err(file(&order.output))?;
    let site = Site { order, tree: work.path().join("tree"), scratch: work.path().join("scratch") };
    fs::create_dir(&site.scratch).map_err(file(&site.scratch))?;

    tell("base system");
    base::unpack(&site)?;
    if order.recipe.framework != Framework::None {
        tell("framework");
        python::install(&site)?;
    }
    tell("appliance");
    let packages = furnish::packages(&site)?;
    furnish::furnish(&site)?;
    furnish::look_for_secrets(&site)?;
    tell("disk");
    let draft = draft_disk(&site)?;
    publish(&site, &draft, packages)
}

fn objections(order: &Order) -> Vec<String> {
    let mut problems = order.recipe.objections();
    let mut needed: Vec<Tool> = tools::BUILD.to_vec();
    needed.extend(order.base.tools());
    if order.recipe.framework != Framework::None {
        needed.extend([tools::CHROOT, tools::PIP]);
    }
    if let Some(missing) = tools::missing(&needed, &tools::search_path()) {
        problems.push(missing.to_string());
    }
    if !rustix::process::geteuid().is_root() {
        problems.push("files of an image are owned by root: run the build as root".to_owned());
    }
    for path in [Some(&order.program), order.context_package.as_ref(), order.base.file()].into_iter().flatten() {
        if !path.is_file() {
            problems.push(format!("{} does not exist", path.display()));
        }
    }
    problems
}

/// Compresses the disk in the scratch directory.
fn draft_disk(site: &Site) -> Result<PathBuf, BuildError> {
    let disk_bytes = site.order.recipe.disk_bytes();
    let root = partitions::root(site, disk::root_bytes(disk_bytes))?;
    let efi = partitions::efi(site)?;
    let (boot, core) = partitions::bios(site)?;
    let raw = site.scratch.join("disk.raw");
    disk::assemble(&raw, disk_bytes, &disk::Parts { boot: &boot, core: &core, efi: &efi, root: &root })?;
    for done in [&root, &efi] {
        fs::remove_file(done).map_err(file(done))?;
    }
    let draft = site.scratch.join("disk.qcow2");
    let words = ["convert", "-c", "-f", "raw", "-O", "qcow2"].map(Into::into);
    site.run("qemu-img", LONG)
        .args(words.into_iter().chain([raw.clone().into_os_string(), draft.clone().into()]))
        .finish()?;
    fs::remove_file(&raw).map_err(file(&raw))?;
    let bytes = fs::metadata(&draft).map_err(file(&draft))?.len();
    let budget = site.order.recipe.budget_bytes();
    if bytes > budget {
        return Err(BuildError::TooLarge { bytes, budget });
    }
    Ok(draft)
}

/// Publishes the image and its descriptions atomically; the image last, so that a reader of the image finds the others.
fn publish(site: &Site, draft: &Path, packages: Vec<(String, String)>) -> Result<Built, BuildError> {
    let order = site.order;
    let hashes = metadata::hashes(draft).map_err(file(draft))?;
    let program = metadata::hashes(&order.program).map_err(file(&order.program))?;
    let bytes = fs::metadata(draft).map_err(file(draft))?.len();
    let contents = Contents::new(&order.recipe, order.epoch, bytes, hashes, program.sha256, packages);
    let texts = [("json", contents.json()), ("yaml", contents.marketplace(&order.recipe, order.publish_at.as_deref()))];
    for (ending, text) in texts {
        let (draft, place) = (site.scratch.join(ending), order.output.join(format!("{}.{ending}", order.recipe)));
        fs::write(&draft, text).map_err(file(&draft))?;
        put(&draft, &place)?;
    }
    let image = order.output.join(format!("{}.qcow2", order.recipe));
    put(draft, &image)?;
    Ok(Built { image, contents })
}

fn put(draft: &Path, place: &Path) -> Result<(), BuildError> {
    fs::File::open(draft).and_then(|draft| draft.sync_all()).map_err(file(draft))?;
    fs::rename(draft, place).map_err(file(place))
}
