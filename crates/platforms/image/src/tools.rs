//! External programs for building and verifying, with their Debian packages. All missing ones are reported together.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// A program in PATH, or a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    pub name: &'static str,
    pub package: &'static str,
}

const fn tool(name: &'static str, package: &'static str) -> Tool {
    Tool { name, package }
}

pub const GRUB_BIOS: &str = "/usr/lib/grub/i386-pc";
pub const GRUB_EFI: &str = "/usr/lib/grub/x86_64-efi";
pub const QEMU: &str = "qemu-system-x86_64";
pub const FIRMWARE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
pub const FIRMWARE_VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

pub const BUILD: [Tool; 9] = [
    tool("tar", "tar"),
    tool("mke2fs", "e2fsprogs"),
    tool("debugfs", "e2fsprogs"),
    tool("mkfs.vfat", "dosfstools"),
    tool("mcopy", "mtools"),
    tool("grub-mkimage", "grub-common"),
    tool("/usr/lib/grub/i386-pc/boot.img", "grub-pc-bin"),
    tool("/usr/lib/grub/x86_64-efi/linux.mod", "grub-efi-amd64-bin"),
    tool("qemu-img", "qemu-utils"),
];
pub const BOOTSTRAP: Tool = tool("debootstrap", "debootstrap");
pub const CHROOT: Tool = tool("chroot", "coreutils");
pub const PIP: Tool = tool("pip3", "python3-pip");
pub const VERIFY: Tool = tool(QEMU, "qemu-system-x86");
pub const VERIFY_UEFI: Tool = tool(FIRMWARE, "ovmf");

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing(Vec<Tool>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|tool| tool.name).collect();
        let packages: BTreeSet<_> = self.0.iter().map(|tool| tool.package).collect();
        let packages: Vec<_> = packages.into_iter().collect();
        write!(f, "{} missing here: apt-get install {}", names.join(", "), packages.join(" "))
    }
}

/// Missing programs; administrator directories count even if they are not in PATH.
pub fn missing(tools: &[Tool], path: &[PathBuf]) -> Option<Missing> {
    let there = |tool: &&Tool| match tool.name.starts_with('/') {
        true => Path::new(tool.name).exists(),
        false => path.iter().any(|place| place.join(tool.name).is_file()),
    };
    let missing: Vec<Tool> = tools.iter().filter(|tool| !there(tool)).copied().collect();
    (!missing.is_empty()).then_some(Missing(missing))
}

/// Directories of programs.
pub fn search_path() -> Vec<PathBuf> {
    let given = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&given).chain(["/usr/sbin", "/sbin"].map(PathBuf::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tools_are_reported_with_their_packages() {
        let missing = missing(&BUILD, &[]).expect("an empty path has none").to_string();
        assert!(missing.starts_with("tar, mke2fs, debugfs, mkfs.vfat, mcopy, grub-mkimage,"), "{missing}");
        assert_eq!(missing.matches("e2fsprogs").count(), 1, "{missing}");
    }

    #[test]
    fn what_is_there_is_not_missed() {
        assert_eq!(missing(&[tool("sh", "dash")], &search_path()), None);
    }
}
