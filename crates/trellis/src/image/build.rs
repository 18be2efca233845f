//! `trellis image build`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use trellis_appliance::settings as appliance;
use trellis_appliance::shell::appliance_sh;
use trellis_image::build::{Base, Order, build};
use trellis_image::metadata;
use trellis_image::recipe::{Framework, Recipe};
use trellis_terminal::{Format, OutputArgs, print, remark};

use super::{RoleName, failure};
use crate::remote::CommandError;

/// The first of January 2026: images of one release are the same bytes on every day.
const DEFAULT_EPOCH: i64 = 1_767_225_600;

/// Build a disk image (QCOW2) of an appliance, with a record of its contents and its entry for a marketplace
#[derive(Debug, Args)]
pub struct BuildArgs {
    role: RoleName,
    /// Packages for apps in Python, in an environment of their own; native apps need none
    #[arg(long, value_enum, default_value = "none")]
    framework: FrameworkName,
    /// A node with as little as it needs
    #[arg(long)]
    edge: bool,
    /// A system to build on instead of Debian's packages: the tar archive of a tree, or a disk (QCOW2, raw)
    #[arg(long, value_name = "FILE")]
    base: Option<PathBuf>,
    /// Of Debian
    #[arg(long, default_value = "bookworm")]
    suite: String,
    /// Mirror of Debian's packages [default: that of debootstrap]
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
    #[arg(long, value_name = "DIR", default_value = ".")]
    output: PathBuf,
    /// Size of the disk, like 4G; on larger disks, machines use all space
    #[arg(long, value_parser = bytes)]
    size: Option<u64>,
    /// The statically linked trellis of the image [default: this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    #[arg(long, value_name = "X.Y.Z", default_value = trellis_flower::Release::NEWEST_TEXT)]
    flower_version: String,
    /// Cache of packages for later builds [default: below the output directory]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// OpenNebula's own context package, instead of the reader that is built in
    #[arg(long, value_name = "FILE.deb")]
    context_package: Option<PathBuf>,
    /// Address of the directory in which images will be published, for the marketplace entry
    #[arg(long, value_name = "URL")]
    publish_at: Option<String>,
    /// Seconds since 1970 that no time in the image is later than
    #[arg(long, env = "SOURCE_DATE_EPOCH", default_value_t = DEFAULT_EPOCH, value_parser = clap::value_parser!(i64).range(0..))]
    epoch: i64,
    /// How to show the result; other commands have --output for it, which is a directory here
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum FrameworkName {
    None,
    Pytorch,
    Tensorflow,
    Sklearn,
}

impl From<FrameworkName> for Framework {
    fn from(name: FrameworkName) -> Framework {
        match name {
            FrameworkName::None => Framework::None,
            FrameworkName::Pytorch => Framework::Pytorch,
            FrameworkName::Tensorflow => Framework::Tensorflow,
            FrameworkName::Sklearn => Framework::Sklearn,
        }
    }
}

pub fn run(args: &BuildArgs) -> Result<(), CommandError> {
    let program = match &args.program {
        // A name without a directory would be searched on PATH.
        Some(program) => program.canonicalize().unwrap_or_else(|_| program.clone()),
        None => std::env::current_exe().map_err(|error| {
            CommandError::failed(format!("this program does not find its own file: {error}"), Some("give --program"))
        })?,
    };
    let order = Order {
        recipe: Recipe {
            role: args.role.into(),
            framework: args.framework.into(),
            edge: args.edge,
            suite: args.suite.clone(),
            flower_version: args.flower_version.clone(),
            disk_bytes: args.size,
            context_package: args.context_package.is_some(),
        },
        base: base(args),
        program,
        context_package: args.context_package.clone(),
        hook: appliance_sh(match args.role {
            RoleName::Superlink => appliance::Role::SuperLink,
            RoleName::Supernode => appliance::Role::SuperNode,
        }),
        output: args.output.clone(),
        cache: args.cache.clone().unwrap_or_else(|| args.output.join(".cache")),
        epoch: args.epoch,
        publish_at: args.publish_at.clone(),
    };
    let built = build(&order, &|what| remark(&format!("{}: {what}", order.recipe))).map_err(|error| failure(&error))?;
    let service = order.output.join("trellis-federation.yaml");
    let text = metadata::service("trellis-superlink", "trellis-supernode");
    std::fs::write(&service, text)
        .map_err(|error| CommandError::failed(format!("{} cannot be written: {error}", service.display()), None))?;
    OutputArgs { format: args.format }.print(&built.contents, || {
        let contents = &built.contents;
        print(&format!("{}\n", built.image.display()));
        print(&format!("{} bytes, sha256 {}\n", contents.compressed_bytes, contents.sha256));
    });
    Ok(())
}

/// By the file name: archives of trees end with theirs, all other files are disks.
fn base(args: &BuildArgs) -> Base {
    let Some(path) = args.base.clone() else { return Base::Mirror(args.mirror.clone()) };
    match path.file_name().is_some_and(|name| name.to_string_lossy().contains(".tar")) {
        true => Base::Archive(path),
        false => Base::Disk(path),
    }
}

/// `4G`, `512M`, or bytes.
fn bytes(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.strip_suffix(['G', 'g']) {
        Some(number) => (number, 1 << 30),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |number| (number, 1 << 20)),
    };
    let whole = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    whole.ok_or_else(|| "write it like 4G or 2048M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_as_people_write_them() {
        let cases = [
            ("4G", Some(4 << 30)),
            ("512m", Some(512 << 20)),
            ("77", Some(77)),
            ("4T", None),
            ("", None),
            ("-1G", None),
        ];
        for (text, expected) in cases {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
    }
}
