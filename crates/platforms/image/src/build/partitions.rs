//! The three partitions: file systems created without a mount, and GRUB for BIOS and UEFI.

use std::fs;
use std::path::PathBuf;

use super::{BuildError, LONG, SHORT, Site, file};
use crate::disk::EFI_BYTES;
use crate::tools::{GRUB_BIOS, GRUB_EFI};
use crate::{ext4, recipe, tree};

/// GRUB modules to find and start a kernel on the root file system.
const MODULES: [&str; 10] =
    ["part_gpt", "ext2", "search", "search_fs_uuid", "configfile", "normal", "linux", "echo", "test", "minicmd"];
/// Volume id of the EFI file system.
const EFI_VOLUME: &str = "7472656c";
/// Size of the journal; a SuperLink's database syncs often with little data.
const JOURNAL_MIB: u32 = 32;
/// Bytes per inode.
const INODE_RATIO: u32 = 16384;
/// Output of debugfs without an error.
const GREETING: &str = "debugfs ";

pub(super) fn root(site: &Site, bytes: u64) -> Result<PathBuf, BuildError> {
    let image = site.scratch.join("root.ext4");
    fs::File::create(&image).and_then(|image| image.set_len(bytes)).map_err(file(&image))?;
    let extended =
        format!("hash_seed={},lazy_itable_init=0,lazy_journal_init=0,nodiscard,root_owner=0:0", ext4::HASH_SEED);
    let uuid = ext4::UUID.to_string();
    let (journal, ratio) = (format!("size={JOURNAL_MIB}"), INODE_RATIO.to_string());
    let words = ["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "1", "-I", "256", "-i", &ratio, "-O", ext4::FEATURES];
    let more = ["-U", &uuid, "-L", ext4::LABEL, "-E", &extended, "-J", &journal];
    let words = words.into_iter().chain(more).map(std::ffi::OsString::from);
    site.run("mke2fs", SHORT).args(words.chain([image.clone().into()])).finish()?;

    let entries = tree::list(&site.tree)?;
    let script = ext4::script(&site.tree, &site.scratch, &entries, site.order.epoch)?;
    for (name, content) in &script.capabilities {
        let path = site.scratch.join(name);
        fs::write(&path, content).map_err(file(&path))?;
    }
    let orders = site.scratch.join("orders");
    fs::write(&orders, &script.orders).map_err(file(&orders))?;
    let words = ["-w".into(), "-f".into(), orders.into_os_string(), image.clone().into_os_string()];
    let said = site.run("debugfs", LONG).args(words).finish()?;
    complaints(&said)?;
    Ok(image)
}

/// The exit code is not reliable; debugfs prints each command, and errors as `name: ...`.
fn complaints(said: &str) -> Result<(), BuildError> {
    let innocent = |line: &&str| {
        line.is_empty()
            || line.starts_with("debugfs: ")
            || line.starts_with(GREETING)
            || line.starts_with("Allocated inode: ")
            || line.starts_with("Setting current time to")
    };
    let complaints: Vec<&str> = said.lines().filter(|line| !innocent(line)).take(20).collect();
    if complaints.is_empty() { Ok(()) } else { Err(BuildError::Filling(complaints.join("\n"))) }
}

/// A FAT file system with the EFI boot file.
pub(super) fn efi(site: &Site) -> Result<PathBuf, BuildError> {
    let place = site.scratch.join("efi");
    fs::create_dir_all(place.join("EFI/BOOT")).map_err(file(&place))?;
    let loader = place.join("EFI/BOOT/BOOTX64.EFI");
    grub(site, "x86_64-efi", GRUB_EFI, &["fat", "all_video"], &loader)?;

    let image = site.scratch.join("efi.fat");
    fs::File::create(&image).and_then(|image| image.set_len(EFI_BYTES)).map_err(file(&image))?;
    let words = ["--invariant", "-F", "16", "-n", "EFI", "-i", EFI_VOLUME].map(std::ffi::OsString::from);
    site.run("mkfs.vfat", SHORT).args(words.into_iter().chain([image.clone().into()])).finish()?;
    // Copies preserve the times of the files, which are those of the image.
    let epoch = std::time::UNIX_EPOCH + std::time::Duration::from_secs(site.order.epoch.unsigned_abs());
    for path in [loader, place.join("EFI/BOOT"), place.join("EFI")] {
        fs::File::open(&path).and_then(|opened| opened.set_modified(epoch)).map_err(file(&path))?;
    }
    let words =
        ["-i".into(), image.clone().into_os_string(), "-s".into(), "-m".into(), place.join("EFI").into(), "::".into()];
    site.run("mcopy", SHORT).args(words).finish()?;
    Ok(image)
}

/// GRUB's two stages for BIOS, not linked yet.
pub(super) fn bios(site: &Site) -> Result<(Vec<u8>, Vec<u8>), BuildError> {
    let core = site.scratch.join("core.img");
    grub(site, "i386-pc", GRUB_BIOS, &["biosdisk"], &core)?;
    let boot = PathBuf::from(GRUB_BIOS).join("boot.img");
    Ok((fs::read(&boot).map_err(file(&boot))?, fs::read(&core).map_err(file(&core))?))
}

fn grub(site: &Site, format: &str, modules: &str, own: &[&str], to: &std::path::Path) -> Result<(), BuildError> {
    let start = site.scratch.join("start.cfg");
    fs::write(&start, recipe::grub_start()).map_err(file(&start))?;
    let (start, to) = (start.display().to_string(), to.display().to_string());
    let words = ["-O", format, "-d", modules, "-p", "/boot/grub", "-c", &start, "-o", &to];
    let words = words.into_iter().chain(MODULES).chain(own.iter().copied()).map(String::from);
    site.run("grub-mkimage", SHORT).args(words).finish()?;
    Ok(())
}
