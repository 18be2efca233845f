//! GRUB for BIOS machines: links its two stages like grub-install on a real disk. Pure: patches bytes.
//!
//! The first stage (`boot.img`) is in the disk's first sector, and loads one sector. That sector is the start of the second
//! stage (`core.img`), and contains a list of its other sectors.

use crate::gpt::SECTOR;

const BYTES: usize = SECTOR as usize;
/// In `boot.img`: the sector that it loads.
const KERNEL_SECTOR: usize = 0x5c;
/// In `boot.img`: a jump for unreliable drive numbers of the firmware; grub-install removes it for hard disks.
const DRIVE_CHECK: usize = 0x66;
const NO_OPERATION: [u8; 2] = [0x90, 0x90];
/// Partition table and signature of the first sector are not code.
const CODE_END: usize = 440;
/// In the first sector of `core.img`: start (8 bytes), length (2) and segment (2) of the only sector run.
const BLOCK_LIST: usize = BYTES - 12;
/// Segment to which the second sector of `core.img` is loaded.
const LOADED_AT: u16 = 0x820;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrubError {
    #[error("boot.img has {0} bytes instead of 512")]
    BootSize(usize),
    #[error("core.img has {bytes} bytes, and its partition {room}")]
    CoreSize { bytes: usize, room: u64 },
}

/// The disk's first sector: code of `boot.img`, and partitions of `record`.
pub fn boot_sector(boot: &[u8], record: &[u8], core_at: u64) -> Result<Vec<u8>, GrubError> {
    if boot.len() != BYTES {
        return Err(GrubError::BootSize(boot.len()));
    }
    let mut sector = record[..BYTES].to_vec();
    sector[..CODE_END].copy_from_slice(&boot[..CODE_END]);
    sector[KERNEL_SECTOR..KERNEL_SECTOR + 8].copy_from_slice(&core_at.to_le_bytes());
    sector[DRIVE_CHECK..DRIVE_CHECK + 2].copy_from_slice(&NO_OPERATION);
    Ok(sector)
}

/// `core.img` for a partition that starts at sector `at` and has `sectors`, padded to whole sectors.
pub fn core(image: &[u8], at: u64, sectors: u64) -> Result<Vec<u8>, GrubError> {
    let needed = image.len().div_ceil(BYTES);
    let rest = u16::try_from(needed.saturating_sub(1)).ok().filter(|rest| *rest > 0 && needed as u64 <= sectors);
    let Some(rest) = rest else {
        return Err(GrubError::CoreSize { bytes: image.len(), room: sectors * SECTOR });
    };
    let mut core = image.to_vec();
    core.resize(needed * BYTES, 0);
    core[BLOCK_LIST..BLOCK_LIST + 8].copy_from_slice(&(at + 1).to_le_bytes());
    core[BLOCK_LIST + 8..BLOCK_LIST + 10].copy_from_slice(&rest.to_le_bytes());
    core[BLOCK_LIST + 10..BLOCK_LIST + 12].copy_from_slice(&LOADED_AT.to_le_bytes());
    Ok(core)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sector_keeps_its_partitions_and_finds_the_second_part() {
        let (boot, mut record) = (vec![0xcc; BYTES], vec![0; BYTES]);
        record[CODE_END..].fill(0x11);
        let sector = boot_sector(&boot, &record, 2048).expect("a sector");
        assert_eq!(sector[KERNEL_SECTOR..KERNEL_SECTOR + 8], 2048u64.to_le_bytes());
        assert_eq!(sector[DRIVE_CHECK..DRIVE_CHECK + 2], NO_OPERATION);
        assert_eq!((sector[0], sector[CODE_END - 1]), (0xcc, 0xcc));
        assert!(sector[CODE_END..].iter().all(|byte| *byte == 0x11));
        assert_eq!(boot_sector(&boot[1..], &record, 1), Err(GrubError::BootSize(511)));
    }

    #[test]
    fn the_second_part_knows_where_its_rest_is() {
        let core = core(&[0xcc; 3 * BYTES + 1], 2048, 2048).expect("it fits");
        assert_eq!(core.len(), 4 * BYTES);
        assert_eq!(core[BLOCK_LIST..BLOCK_LIST + 8], 2049u64.to_le_bytes());
        assert_eq!(core[BLOCK_LIST + 8..BLOCK_LIST + 12], [3, 0, 0x20, 0x08]);
        assert_eq!(core[BYTES], 0xcc);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (bytes, sectors) in [(BYTES, 8), (9 * BYTES, 8), (0x1_0002 * BYTES, 1 << 20)] {
            let error = core(&vec![0; bytes], 2048, sectors).unwrap_err();
            assert_eq!(error, GrubError::CoreSize { bytes, room: sectors * SECTOR });
        }
    }
}
