//! The network namespace of a pod, with one interface that is routed to the kubelet.

use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::command::{run, run_with_input};

/// Address of the kubelet on every pod link. Pods do not route through each other.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The destination of a default route, as the kernel prints it.
const ANYWHERE: &str = "00000000";

/// The namespace exists as long as an idle process in it.
pub(super) struct Sandbox {
    pub address: Ipv4Addr,
    holder: Child,
}

impl Sandbox {
    pub async fn make(address: Ipv4Addr, interface: &str, host_name: &str) -> Result<Sandbox, String> {
        let hold = "hostname \"$0\" && exec sleep infinity";
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "--uts", "sh", "-c", hold, host_name]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let sandbox =
            Sandbox { address, holder: command.spawn().map_err(|why| format!("no network namespace: {why}"))? };
        sandbox.wait_until_apart().await?;
        let pid = sandbox.pid().to_string();
        let outside = format!(
            "link add {interface} type veth peer name eth0 netns {pid}\n\
             address add {GATEWAY}/32 dev {interface}\n\
             link set {interface} up\n\
             route replace {address}/32 dev {interface}\n"
        );
        let inside = format!(
            "link set lo up\naddress add {address}/32 dev eth0\nlink set eth0 up\n\
             route add {GATEWAY}/32 dev eth0\nroute add default via {GATEWAY} dev eth0\n"
        );
        run_with_input("ip", &["-batch", "-"], &outside).await?;
        run_with_input("nsenter", &["--target", &pid, "--net", "ip", "-batch", "-"], &inside).await?;
        Ok(sandbox)
    }

    /// PID of a process in the namespace.
    pub fn pid(&self) -> u32 {
        self.holder.id().unwrap_or_default()
    }

    async fn wait_until_apart(&self) -> Result<(), String> {
        let link = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net"));
        let own = link("self").map_err(|why| why.to_string())?;
        loop {
            match link(&self.pid().to_string()) {
                Ok(its) if its != own => return Ok(()),
                Ok(_) => tokio::time::sleep(POLL_INTERVAL).await,
                Err(why) => return Err(format!("no network namespace: {why}")),
            }
        }
    }

    pub async fn end(mut self) {
        let _ = self.holder.kill().await;
    }
}

/// Pods reach each other through the network namespace of the kubelet, which must be private.
pub(super) async fn prepare_network() -> Result<(), String> {
    let routes =
        std::fs::read_to_string("/proc/self/net/route").map_err(|why| format!("no routes to be seen: {why}"))?;
    let leads_out = |line: &str| line.split_whitespace().nth(1) == Some(ANYWHERE);
    if routes.lines().any(leads_out) {
        return Err(
            "pods as processes need a network namespace of their own: start this with `unshare --net`".to_owned()
        );
    }
    run("ip", &["link", "set", "lo", "up"]).await?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").map_err(|why| format!("no forwarding between pods: {why}"))
}
