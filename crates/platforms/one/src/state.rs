//! State numbers of OpenNebula with their names. Unknown numbers of newer versions are preserved.

macro_rules! numbered {
    ($(#[$meta:meta])* $kind:ident { $($number:literal $variant:ident $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $kind {
            $($variant,)*
            /// A number without a known name.
            Other(u32),
        }

        impl $kind {
            pub const ALL: &[$kind] = &[$($kind::$variant,)*];

            pub fn from_number(number: u32) -> $kind {
                match number {
                    $($number => $kind::$variant,)*
                    other => $kind::Other(other),
                }
            }

            pub fn number(self) -> u32 {
                match self {
                    $($kind::$variant => $number,)*
                    $kind::Other(number) => number,
                }
            }

            /// Name in OpenNebula; `None` if the number is unknown.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $($kind::$variant => Some($name),)*
                    $kind::Other(_) => None,
                }
            }

            pub fn from_name(name: &str) -> Option<$kind> {
                match name {
                    $($name => Some($kind::$variant),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "state {}", self.number()),
                }
            }
        }
    };
}

pub(crate) use numbered;

numbered! {
    VmState {
        0 Init "INIT",
        1 Pending "PENDING",
        2 Hold "HOLD",
        3 Active "ACTIVE",
        4 Stopped "STOPPED",
        5 Suspended "SUSPENDED",
        6 Done "DONE",
        8 Poweroff "POWEROFF",
        9 Undeployed "UNDEPLOYED",
        10 Cloning "CLONING",
        11 CloningFailure "CLONING_FAILURE",
    }
}

numbered! {
    /// Only valid while the VM is ACTIVE.
    LcmState {
        0 Init "LCM_INIT",
        1 Prolog "PROLOG",
        2 Boot "BOOT",
        3 Running "RUNNING",
        4 Migrate "MIGRATE",
        5 SaveStop "SAVE_STOP",
        6 SaveSuspend "SAVE_SUSPEND",
        7 SaveMigrate "SAVE_MIGRATE",
        8 PrologMigrate "PROLOG_MIGRATE",
        9 PrologResume "PROLOG_RESUME",
        10 EpilogStop "EPILOG_STOP",
        11 Epilog "EPILOG",
        12 Shutdown "SHUTDOWN",
        15 CleanupResubmit "CLEANUP_RESUBMIT",
        16 Unknown "UNKNOWN",
        17 Hotplug "HOTPLUG",
        18 ShutdownPoweroff "SHUTDOWN_POWEROFF",
        19 BootUnknown "BOOT_UNKNOWN",
        20 BootPoweroff "BOOT_POWEROFF",
        21 BootSuspended "BOOT_SUSPENDED",
        22 BootStopped "BOOT_STOPPED",
        23 CleanupDelete "CLEANUP_DELETE",
        24 HotplugSnapshot "HOTPLUG_SNAPSHOT",
        25 HotplugNic "HOTPLUG_NIC",
        26 HotplugSaveas "HOTPLUG_SAVEAS",
        27 HotplugSaveasPoweroff "HOTPLUG_SAVEAS_POWEROFF",
        28 HotplugSaveasSuspended "HOTPLUG_SAVEAS_SUSPENDED",
        29 ShutdownUndeploy "SHUTDOWN_UNDEPLOY",
        30 EpilogUndeploy "EPILOG_UNDEPLOY",
        31 PrologUndeploy "PROLOG_UNDEPLOY",
        32 BootUndeploy "BOOT_UNDEPLOY",
        33 HotplugPrologPoweroff "HOTPLUG_PROLOG_POWEROFF",
        34 HotplugEpilogPoweroff "HOTPLUG_EPILOG_POWEROFF",
        35 BootMigrate "BOOT_MIGRATE",
        36 BootFailure "BOOT_FAILURE",
        37 BootMigrateFailure "BOOT_MIGRATE_FAILURE",
        38 PrologMigrateFailure "PROLOG_MIGRATE_FAILURE",
        39 PrologFailure "PROLOG_FAILURE",
        40 EpilogFailure "EPILOG_FAILURE",
        41 EpilogStopFailure "EPILOG_STOP_FAILURE",
        42 EpilogUndeployFailure "EPILOG_UNDEPLOY_FAILURE",
        43 PrologMigratePoweroff "PROLOG_MIGRATE_POWEROFF",
        44 PrologMigratePoweroffFailure "PROLOG_MIGRATE_POWEROFF_FAILURE",
        45 PrologMigrateSuspend "PROLOG_MIGRATE_SUSPEND",
        46 PrologMigrateSuspendFailure "PROLOG_MIGRATE_SUSPEND_FAILURE",
        47 BootUndeployFailure "BOOT_UNDEPLOY_FAILURE",
        48 BootStoppedFailure "BOOT_STOPPED_FAILURE",
        49 PrologResumeFailure "PROLOG_RESUME_FAILURE",
        50 PrologUndeployFailure "PROLOG_UNDEPLOY_FAILURE",
        51 DiskSnapshotPoweroff "DISK_SNAPSHOT_POWEROFF",
        52 DiskSnapshotRevertPoweroff "DISK_SNAPSHOT_REVERT_POWEROFF",
        53 DiskSnapshotDeletePoweroff "DISK_SNAPSHOT_DELETE_POWEROFF",
        54 DiskSnapshotSuspended "DISK_SNAPSHOT_SUSPENDED",
        56 DiskSnapshotDeleteSuspended "DISK_SNAPSHOT_DELETE_SUSPENDED",
        57 DiskSnapshot "DISK_SNAPSHOT",
        59 DiskSnapshotDelete "DISK_SNAPSHOT_DELETE",
        60 PrologMigrateUnknown "PROLOG_MIGRATE_UNKNOWN",
        61 PrologMigrateUnknownFailure "PROLOG_MIGRATE_UNKNOWN_FAILURE",
        62 DiskResize "DISK_RESIZE",
        63 DiskResizePoweroff "DISK_RESIZE_POWEROFF",
        64 DiskResizeUndeployed "DISK_RESIZE_UNDEPLOYED",
        65 HotplugNicPoweroff "HOTPLUG_NIC_POWEROFF",
        66 HotplugResize "HOTPLUG_RESIZE",
        67 HotplugSaveasUndeployed "HOTPLUG_SAVEAS_UNDEPLOYED",
        68 HotplugSaveasStopped "HOTPLUG_SAVEAS_STOPPED",
        69 Backup "BACKUP",
        70 BackupPoweroff "BACKUP_POWEROFF",
        71 Restore "RESTORE",
    }
}

impl LcmState {
    /// The VM needs an administrator to recover it.
    pub fn is_failure(self) -> bool {
        self.name().is_some_and(|name| name.ends_with("_FAILURE"))
    }
}

numbered! {
    ImageState {
        0 Init "INIT",
        1 Ready "READY",
        2 Used "USED",
        3 Disabled "DISABLED",
        4 Locked "LOCKED",
        5 Error "ERROR",
        6 Clone "CLONE",
        7 Delete "DELETE",
        8 UsedPers "USED_PERS",
        9 LockedUsed "LOCKED_USED",
        10 LockedUsedPers "LOCKED_USED_PERS",
    }
}

numbered! {
    ImageKind {
        0 Os "OS",
        1 Cdrom "CDROM",
        2 Datablock "DATABLOCK",
        3 Kernel "KERNEL",
        4 Ramdisk "RAMDISK",
        5 Context "CONTEXT",
        6 Backup "BACKUP",
        7 Filesystem "FILESYSTEM",
    }
}

numbered! {
    DatastoreKind {
        0 Image "IMAGE",
        1 System "SYSTEM",
        2 File "FILE",
        3 Backup "BACKUP",
    }
}

numbered! {
    DatastoreState {
        0 Ready "READY",
        1 Disabled "DISABLED",
    }
}

numbered! {
    HostState {
        0 Init "INIT",
        2 Monitored "MONITORED",
        3 Error "ERROR",
        4 Disabled "DISABLED",
        8 Offline "OFFLINE",
    }
}

numbered! {
    NetworkState {
        0 Init "INIT",
        1 Ready "READY",
        2 LockCreate "LOCK_CREATE",
        3 LockDelete "LOCK_DELETE",
        4 Done "DONE",
        5 Error "ERROR",
        6 UpdateFailure "UPDATE_FAILURE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_belong_together() {
        for &state in LcmState::ALL {
            assert_eq!(LcmState::from_number(state.number()), state);
            assert_eq!(LcmState::from_name(state.name().unwrap()), Some(state));
        }
        for &state in VmState::ALL {
            assert_eq!(VmState::from_number(state.number()), state);
        }
        for retired in [13, 14, 55, 58, 72] {
            assert_eq!(LcmState::from_number(retired), LcmState::Other(retired));
            assert_eq!(LcmState::Other(retired).number(), retired);
        }
        assert_eq!(LcmState::Other(72).to_string(), "state 72");
        assert_eq!(VmState::from_number(7), VmState::Other(7));
    }

    #[test]
    fn failures_are_known_by_their_names() {
        let failures: Vec<u32> = LcmState::ALL.iter().filter(|state| state.is_failure()).map(|s| s.number()).collect();
        assert_eq!(failures, [36, 37, 38, 39, 40, 41, 42, 44, 46, 47, 48, 49, 50, 61]);
    }
}
