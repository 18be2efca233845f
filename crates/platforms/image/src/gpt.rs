//! GUID partition table of an image, with a protective MBR. Pure: returns bytes.

/// Sector size in this crate.
pub const SECTOR: u64 = 512;
/// Partitions are aligned to 1 MiB.
pub const ALIGNMENT: u64 = 2048;
/// Sectors before the first partition: protective MBR, header, entries.
pub const PRIMARY_SECTORS: u64 = 2 + ENTRY_SECTORS;
/// Sectors at the end: backup entries and header.
pub const BACKUP_SECTORS: u64 = ENTRY_SECTORS + 1;

const ENTRY_COUNT: usize = 128;
const ENTRY_BYTES: usize = 128;
const ENTRY_SECTORS: u64 = (ENTRY_COUNT * ENTRY_BYTES) as u64 / SECTOR;
const HEADER_BYTES: usize = 92;
const REVISION: u32 = 0x0001_0000;
/// Maximum length of a partition's name.
const NAME_UNITS: usize = 36;

/// Partition of GRUB's second stage.
pub const BIOS_BOOT: Guid = Guid::new(0x2168_6148_6449_6e6f, 0x744e_6565_6445_4649);
pub const EFI_SYSTEM: Guid = Guid::new(0xc12a_7328_f81f_11d2, 0xba4b_00a0_c93e_c93b);
/// Root file system of this architecture; systemd-repart grows it.
pub const ROOT_X86_64: Guid = Guid::new(0x4f68_bce3_e8cd_4db1, 0x96e7_fbca_f984_b709);

/// Linux file system, as most installers mark it.
pub const LINUX: Guid = Guid::new(0x0fc6_3daf_8483_4772, 0x8e79_3d69_d847_7de4);

/// Textual form in two halves: `high` before the third hyphen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guid {
    high: u64,
    low: u64,
}

impl Guid {
    pub const fn new(high: u64, low: u64) -> Self {
        Self { high, low }
    }

    /// On disk the first three groups are little-endian.
    pub fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&((self.high >> 32) as u32).to_le_bytes());
        bytes[4..6].copy_from_slice(&((self.high >> 16) as u16).to_le_bytes());
        bytes[6..8].copy_from_slice(&(self.high as u16).to_le_bytes());
        bytes[8..].copy_from_slice(&self.low.to_be_bytes());
        bytes
    }
}

impl std::fmt::Display for Guid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (high, low) = (self.high, self.low);
        let groups = (high >> 32, (high >> 16) & 0xffff, high & 0xffff, low >> 48, low & 0xffff_ffff_ffff);
        write!(f, "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", groups.0, groups.1, groups.2, groups.3, groups.4)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub kind: Guid,
    pub id: Guid,
    pub name: &'static str,
    pub first: u64,
    pub sectors: u64,
}

impl Partition {
    fn last(&self) -> u64 {
        self.first + self.sectors - 1
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    disk: Guid,
    sectors: u64,
    partitions: Vec<Partition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error("a disk of {sectors} sectors is too small for partitions that need {needed}")]
    TooSmall { sectors: u64, needed: u64 },
}

/// A partition without a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub kind: Guid,
    pub id: Guid,
    pub name: &'static str,
    /// Minimum size; the last partition also gets the remaining space.
    pub bytes: u64,
}

/// Offset and length of the largest partition with a Linux file system, from a disk's first sectors. `None` if the disk has
/// no such table or partition.
pub fn largest_linux(head: &[u8]) -> Option<(u64, u64)> {
    let number = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let header = SECTOR as usize;
    head.get(header..header + 8).filter(|mark| *mark == b"EFI PART")?;
    let entries = usize::try_from(number(header + 72)?.checked_mul(SECTOR)?).ok()?;
    let one = |index: usize| {
        let at = entries.checked_add(index * ENTRY_BYTES)?;
        let kind: &[u8] = head.get(at..at + 16)?;
        [ROOT_X86_64, LINUX].iter().find(|linux| linux.bytes() == kind)?;
        let (first, last) = (number(at + 32)?, number(at + 40)?);
        Some((first.checked_mul(SECTOR)?, last.checked_sub(first)?.checked_add(1)?.checked_mul(SECTOR)?))
    };
    (0..ENTRY_COUNT).filter_map(one).max_by_key(|(_, bytes)| *bytes)
}

impl Table {
    /// Places the partitions in order, aligned; the last one gets the rest of the disk.
    pub fn lay_out(disk: Guid, bytes: u64, wanted: &[Wanted]) -> Result<Self, TableError> {
        let sectors = bytes / SECTOR;
        let mut next = ALIGNMENT;
        let mut partitions = Vec::with_capacity(wanted.len());
        for Wanted { kind, id, name, bytes } in wanted {
            let length = bytes.div_ceil(SECTOR).next_multiple_of(ALIGNMENT).max(ALIGNMENT);
            partitions.push(Partition { kind: *kind, id: *id, name, first: next, sectors: length });
            next += length;
        }
        let needed = next + ALIGNMENT;
        if needed > sectors {
            return Err(TableError::TooSmall { sectors, needed });
        }
        if let Some(last) = partitions.last_mut() {
            let end = (sectors - BACKUP_SECTORS) / ALIGNMENT * ALIGNMENT;
            last.sectors = end - last.first;
        }
        Ok(Self { disk, sectors, partitions })
    }

    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    pub fn bytes(&self) -> u64 {
        self.sectors * SECTOR
    }

    /// The first sectors of the disk; the boot loader adds its code to the first one.
    pub fn primary(&self) -> Vec<u8> {
        let mut bytes = self.protective();
        bytes.extend(self.header(1, self.sectors - 1, 2));
        bytes.extend(self.entries());
        bytes
    }

    /// The last sectors, and the number of the first of them.
    pub fn backup(&self) -> (u64, Vec<u8>) {
        let first = self.sectors - BACKUP_SECTORS;
        let mut bytes = self.entries();
        bytes.extend(self.header(self.sectors - 1, 1, first));
        (first, bytes)
    }

    /// Protective MBR with one partition over the whole disk. It is active, because some firmware requires an active
    /// partition.
    fn protective(&self) -> Vec<u8> {
        let mut record = vec![0; SECTOR as usize];
        let covered = u32::try_from(self.sectors - 1).unwrap_or(u32::MAX);
        record[446..454].copy_from_slice(&[0x80, 0x00, 0x02, 0x00, 0xee, 0xff, 0xff, 0xff]);
        record[454..458].copy_from_slice(&1u32.to_le_bytes());
        record[458..462].copy_from_slice(&covered.to_le_bytes());
        record[510..].copy_from_slice(&[0x55, 0xaa]);
        record
    }

    fn entries(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENTRY_COUNT * ENTRY_BYTES);
        for partition in &self.partitions {
            bytes.extend(partition.kind.bytes());
            bytes.extend(partition.id.bytes());
            bytes.extend(partition.first.to_le_bytes());
            bytes.extend(partition.last().to_le_bytes());
            bytes.extend(0u64.to_le_bytes());
            let mut name: Vec<u16> = partition.name.encode_utf16().take(NAME_UNITS).collect();
            name.resize(NAME_UNITS, 0);
            bytes.extend(name.iter().flat_map(|unit| unit.to_le_bytes()));
        }
        bytes.resize(ENTRY_COUNT * ENTRY_BYTES, 0);
        bytes
    }

    fn header(&self, own: u64, other: u64, entries_at: u64) -> Vec<u8> {
        let mut header = Vec::with_capacity(SECTOR as usize);
        header.extend(b"EFI PART");
        header.extend(REVISION.to_le_bytes());
        header.extend((HEADER_BYTES as u32).to_le_bytes());
        header.extend([0; 8]); // its own checksum, set below; reserved
        header.extend(own.to_le_bytes());
        header.extend(other.to_le_bytes());
        header.extend(PRIMARY_SECTORS.to_le_bytes());
        header.extend((self.sectors - BACKUP_SECTORS - 1).to_le_bytes());
        header.extend(self.disk.bytes());
        header.extend(entries_at.to_le_bytes());
        header.extend((ENTRY_COUNT as u32).to_le_bytes());
        header.extend((ENTRY_BYTES as u32).to_le_bytes());
        header.extend(crc32fast::hash(&self.entries()).to_le_bytes());
        let checksum = crc32fast::hash(&header);
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        header.resize(SECTOR as usize, 0);
        header
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn wanted(sizes: &[u64]) -> Vec<Wanted> {
        let kinds = [BIOS_BOOT, EFI_SYSTEM, ROOT_X86_64];
        sizes.iter().zip(kinds).map(|(bytes, kind)| Wanted { kind, id: kind, name: "part", bytes: *bytes }).collect()
    }

    fn number(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    #[test]
    fn a_guid_reads_and_is_stored_as_others_write_it() {
        assert_eq!(EFI_SYSTEM.to_string(), "c12a7328-f81f-11d2-ba4b-00a0c93ec93b");
        let stored = [0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b];
        assert_eq!(EFI_SYSTEM.bytes(), stored);
        assert_eq!(&BIOS_BOOT.bytes(), b"Hah!IdontNeedEFI");
    }

    #[test]
    fn both_partition_tables_are_equal() {
        let table = Table::lay_out(EFI_SYSTEM, 64 * MIB, &wanted(&[MIB, 8 * MIB, 16 * MIB])).expect("it fits");
        let (primary, (at, backup)) = (table.primary(), table.backup());
        assert_eq!(primary.len() as u64, PRIMARY_SECTORS * SECTOR);
        assert_eq!((at, backup.len() as u64), (table.sectors - 33, BACKUP_SECTORS * SECTOR));
        let (first, last) = (&primary[512..1024], &backup[backup.len() - 512..]);
        assert_eq!((number(first, 24), number(first, 32)), (1, table.sectors - 1));
        assert_eq!((number(last, 24), number(last, 32)), (table.sectors - 1, 1));
        assert_eq!((number(first, 72), number(last, 72)), (2, at));
        assert_eq!(primary[1024..], backup[..backup.len() - 512]);
        for header in [first, last] {
            let mut blank = header[..HEADER_BYTES].to_vec();
            blank[16..20].fill(0);
            assert_eq!(header[16..20], crc32fast::hash(&blank).to_le_bytes());
        }
    }

    #[test]
    fn a_small_disk_is_rejected_with_the_required_size() {
        let error = Table::lay_out(EFI_SYSTEM, 8 * MIB, &wanted(&[MIB, 8 * MIB, MIB])).unwrap_err();
        assert_eq!(error, TableError::TooSmall { sectors: 16384, needed: 2048 * 12 });
    }

    #[test]
    fn the_root_of_a_disk_is_found_again() {
        let table = Table::lay_out(EFI_SYSTEM, 64 * MIB, &wanted(&[MIB, 8 * MIB, 16 * MIB])).expect("it fits");
        let root = &table.partitions()[2];
        let found = largest_linux(&table.primary());
        assert_eq!(found, Some((root.first * SECTOR, root.sectors * SECTOR)));
        assert_eq!(largest_linux(&[0; 4096]), None);
        assert_eq!(largest_linux(&table.primary()[..600]), None);
    }

    proptest! {
        #[test]
        fn partitions_are_aligned_apart_and_inside(
            sizes in proptest::collection::vec(1u64..64 * MIB, 3), extra in 0u64..64 * MIB,
        ) {
            let total: u64 = sizes.iter().sum::<u64>() + 8 * MIB + extra;
            let table = Table::lay_out(ROOT_X86_64, total, &wanted(&sizes)).expect("it fits");
            let mut free = PRIMARY_SECTORS;
            for (partition, bytes) in table.partitions().iter().zip(&sizes) {
                prop_assert!(partition.first >= free && partition.first % ALIGNMENT == 0);
                prop_assert!(partition.sectors * SECTOR >= *bytes);
                free = partition.last() + 1;
            }
            prop_assert!(free <= table.backup().0);
        }
    }
}
