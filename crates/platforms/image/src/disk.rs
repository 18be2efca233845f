//! Writes partitions to a sparse disk file; zeros are skipped.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::gpt::{self, Guid, SECTOR, Table, TableError, Wanted};
use crate::grub::{self, GrubError};

const CHUNK_BYTES: usize = 1 << 20;
const MIB: u64 = 1 << 20;
/// GRUB's second stage.
const BIOS_BOOT_BYTES: u64 = MIB;
pub const EFI_BYTES: u64 = 16 * MIB;
/// Space for the backup table.
const TAIL_BYTES: u64 = 2 * MIB;

const DISK: Guid = Guid::new(0x7472_656c_6c69_4c73, 0x8001_0000_0000_0010);
const BIOS_PARTITION: Guid = Guid::new(0x7472_656c_6c69_4c73, 0x8001_0000_0000_0011);
const EFI_PARTITION: Guid = Guid::new(0x7472_656c_6c69_4c73, 0x8001_0000_0000_0012);
const ROOT_PARTITION: Guid = Guid::new(0x7472_656c_6c69_4c73, 0x8001_0000_0000_0013);

#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Grub(#[from] GrubError),
    #[error("the disk cannot be written")]
    Io(#[from] io::Error),
}

/// Contents of the disk.
#[derive(Debug)]
pub struct Parts<'a> {
    pub boot: &'a [u8],
    pub core: &'a [u8],
    pub efi: &'a Path,
    pub root: &'a Path,
}

/// Size of the root file system on a disk of this size.
pub fn root_bytes(disk_bytes: u64) -> u64 {
    disk_bytes.saturating_sub(MIB + BIOS_BOOT_BYTES + EFI_BYTES + TAIL_BYTES) / MIB * MIB
}

pub fn table(disk_bytes: u64) -> Result<Table, TableError> {
    let wanted = [
        Wanted { kind: gpt::BIOS_BOOT, id: BIOS_PARTITION, name: "BIOS boot", bytes: BIOS_BOOT_BYTES },
        Wanted { kind: gpt::EFI_SYSTEM, id: EFI_PARTITION, name: "EFI system", bytes: EFI_BYTES },
        Wanted { kind: gpt::ROOT_X86_64, id: ROOT_PARTITION, name: "root", bytes: root_bytes(disk_bytes) },
    ];
    Table::lay_out(DISK, disk_bytes, &wanted)
}

pub fn assemble(to: &Path, disk_bytes: u64, parts: &Parts) -> Result<(), DiskError> {
    let table = table(disk_bytes)?;
    let [bios, efi, root] = table.partitions() else { unreachable!("three partitions were laid out") };
    let core = grub::core(parts.core, bios.first, bios.sectors)?;
    let mut primary = table.primary();
    let sector = grub::boot_sector(parts.boot, &primary, bios.first)?;
    primary[..sector.len()].copy_from_slice(&sector);
    let (backup_at, backup) = table.backup();

    let mut disk = File::create(to)?;
    disk.set_len(table.bytes())?;
    for (at, bytes) in [(0, &primary), (bios.first, &core), (backup_at, &backup)] {
        disk.seek(SeekFrom::Start(at * SECTOR))?;
        disk.write_all(bytes)?;
    }
    for (partition, file) in [(efi, parts.efi), (root, parts.root)] {
        copy_sparse(&mut File::open(file)?, &mut disk, partition.first * SECTOR)?;
    }
    disk.sync_all()?;
    Ok(())
}

/// Copies from the current position of `from` to the byte `at`; skips zeros.
pub(crate) fn copy_sparse(from: &mut impl Read, to: &mut (impl Write + Seek), mut at: u64) -> io::Result<()> {
    let (mut chunk, nothing) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        let mut filled = 0;
        while filled < chunk.len() {
            match from.read(&mut chunk[filled..])? {
                0 => break,
                more => filled += more,
            }
        }
        if filled == 0 {
            return Ok(());
        }
        if chunk[..filled] != nothing[..filled] {
            to.seek(SeekFrom::Start(at))?;
            to.write_all(&chunk[..filled])?;
        }
        at += filled as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_where_the_table_says() {
        let place = tempfile::tempdir().expect("a directory");
        let path = |name: &str| place.path().join(name);
        std::fs::write(path("efi"), b"EFI").expect("a file");
        let mut root = vec![0; 3 * CHUNK_BYTES];
        root[2 * CHUNK_BYTES] = 7;
        std::fs::write(path("root"), &root).expect("a file");
        let parts = Parts { boot: &[1; 512], core: &[2; 2000], efi: &path("efi"), root: &path("root") };
        assemble(&path("disk"), 64 * MIB, &parts).expect("a disk");

        let disk = std::fs::read(path("disk")).expect("the disk");
        assert_eq!(disk.len() as u64, 64 * MIB);
        assert_eq!((disk[0], &disk[512..520]), (1, &b"EFI PART"[..]));
        let at = |mib: u64| (mib * MIB) as usize;
        assert_eq!(disk[at(1)], 2);
        assert_eq!(&disk[at(2)..at(2) + 3], b"EFI");
        assert_eq!(disk[at(18) + 2 * CHUNK_BYTES], 7);
        assert_eq!(&disk[disk.len() - 512..disk.len() - 504], b"EFI PART");
    }

    #[test]
    fn the_root_file_system_fits_its_partition() {
        for disk in [64 * MIB, 1 << 30, (4 << 30) + 12345] {
            let table = table(disk).expect("it fits");
            let root = table.partitions().last().expect("a root");
            assert!(root.sectors * SECTOR >= root_bytes(disk), "{disk}");
            assert!(root.sectors * SECTOR - root_bytes(disk) <= 2 * MIB, "{disk}");
        }
    }
}
