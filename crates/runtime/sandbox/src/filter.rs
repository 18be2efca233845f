//! The system call filters. They are deny lists: the system calls that libraries of apps use are not fully known, and
//! other mechanisms restrict files, processes and the network.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Compare, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use crate::policy::{Policy, Sockets};

/// Calls that change the system, inspect other processes, or open kernel interfaces that apps do not need.
const REFUSED: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_userfaultfd,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_ON_ARCH: &[i64] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_kexec_file_load];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_ON_ARCH: &[i64] = &[];

/// Calls that fail with ENOSYS, so that libraries fall back to older ones: a filter cannot inspect the arguments of
/// `clone3`, and io_uring performs operations that no filter sees.
const ABSENT: &[i64] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

const NAMESPACES: &[libc::c_int] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Mask for the type of a socket, without flags.
const SOCKET_TYPE: u64 = 0xf;
/// TCP Fast Open: connects without `connect`.
const MSG_FASTOPEN: u64 = 0x2000_0000;

type Error = seccompiler::Error;
type Backend = seccompiler::BackendError;
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The filter programs, in the order of installation.
pub fn programs(policy: &Policy) -> Result<Vec<BpfProgram>, Error> {
    let mut refused: Rules = REFUSED.iter().chain(REFUSED_ON_ARCH).map(|call| (*call, Vec::new())).collect();
    refused.insert(libc::SYS_clone, namespaces()?);
    refused.insert(libc::SYS_socket, sockets(&policy.sockets)?);
    if matches!(policy.sockets, Sockets::Port(_)) {
        for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
            refused.insert(call, vec![rule(&[(flags, Compare::MaskedEq(MSG_FASTOPEN), MSG_FASTOPEN)])?]);
        }
    }
    let mut absent: Rules = ABSENT.iter().map(|call| (*call, Vec::new())).collect();
    if policy.refuse_truncate {
        refused.insert(libc::SYS_truncate, Vec::new());
        truncating_reads(&mut refused)?;
        absent.insert(libc::SYS_openat2, Vec::new());
    }
    let mut programs = vec![program(refused, libc::EPERM)?, program(absent, libc::ENOSYS)?];
    programs.extend(refuse_x32());
    Ok(programs)
}

fn program(rules: Rules, error: libc::c_int) -> Result<BpfProgram, Error> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(error as u32), arch)?.try_into()?)
}

fn rule(conditions: &[(u8, Compare, u64)]) -> Result<SeccompRule, Backend> {
    let made = conditions
        .iter()
        .map(|(argument, compare, value)| SeccompCondition::new(*argument, Length::Dword, compare.clone(), *value));
    SeccompRule::new(made.collect::<Result<_, _>>()?)
}

fn namespaces() -> Result<Vec<SeccompRule>, Backend> {
    let flags = NAMESPACES.iter().map(|flag| *flag as u64);
    flags.map(|flag| rule(&[(0, Compare::MaskedEq(flag), flag)])).collect()
}

/// `socket(domain, type, protocol)`: the refused combinations.
fn sockets(allowed: &Sockets) -> Result<Vec<SeccompRule>, Backend> {
    let not = |domain: libc::c_int| (0, Compare::Ne, domain as u64);
    let is = |domain: libc::c_int| (0, Compare::Eq, domain as u64);
    let (unix, v4, v6, netlink) = (libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK);
    let rules: Vec<Vec<(u8, Compare, u64)>> = match allowed {
        Sockets::Unix => vec![vec![not(unix)]],
        Sockets::All => vec![
            vec![not(unix), not(v4), not(v6), not(netlink)],
            vec![is(netlink), (2, Compare::Ne, libc::NETLINK_ROUTE as u64)],
        ],
        // TCP only: Landlock has no rules for other protocols, for example MPTCP.
        Sockets::Port(_) => vec![
            vec![not(unix), not(v4), not(v6)],
            vec![not(unix), (1, Compare::MaskedEq(SOCKET_TYPE), libc::SOCK_DGRAM as u64)],
            vec![not(unix), (1, Compare::MaskedEq(SOCKET_TYPE), libc::SOCK_RAW as u64)],
            vec![not(unix), (2, Compare::Ne, 0), (2, Compare::Ne, libc::IPPROTO_TCP as u64)],
        ],
    };
    rules.iter().map(|conditions| rule(conditions)).collect()
}

/// Refuses `O_TRUNC` on a file opened for reading, for kernels that do not restrict truncation.
fn truncating_reads(refused: &mut Rules) -> Result<(), Backend> {
    let mask = (libc::O_ACCMODE | libc::O_TRUNC) as u64;
    let truncating = |flags: u8| rule(&[(flags, Compare::MaskedEq(mask), libc::O_TRUNC as u64)]);
    #[cfg(target_arch = "x86_64")]
    refused.insert(libc::SYS_open, vec![truncating(1)?]);
    refused.insert(libc::SYS_openat, vec![truncating(2)?]);
    Ok(())
}

/// On x86-64, the x32 ABI numbers the same calls differently and would bypass the filters above.
#[cfg(target_arch = "x86_64")]
fn refuse_x32() -> Option<BpfProgram> {
    const X32: u32 = 0x4000_0000;
    const LOAD_NUMBER: (u16, u32) = (0x20, 0);
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    Some(vec![
        step(LOAD_NUMBER.0, 0, 0, LOAD_NUMBER.1),
        step(JUMP_IF_AT_LEAST, 0, 1, X32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ])
}

#[cfg(not(target_arch = "x86_64"))]
fn refuse_x32() -> Option<BpfProgram> {
    None
}
