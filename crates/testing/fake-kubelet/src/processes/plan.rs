//! Computes how a container is started: user, mounts, and the shell script. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use super::expand::expand;
use super::images::Image;

/// Directories of this machine that containers must not see. They are empty and read-only.
const HIDDEN: [&str; 6] = ["/tmp", "/run", "/home", "/root", "/var/tmp", "/mnt"];
/// Creates a mount point for `$1` (a file or a directory) at `$2` of the container, and stores its real path in
/// `$placed`. Links resolve in the container.
const PLACE: &str = r#"
    if [ -d "$1" ]; then make='mkdir -p "$0"'; else make='mkdir -p "$(dirname "$0")"; touch "$0"'; fi
    placed=ROOT$(chroot ROOT sh -c "[ -e \"\$0\" ] || { $make; }; readlink -f \"\$0\"" "$2")
"#;
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub identity: Identity,
    pub directory: PathBuf,
    pub mounts: Vec<Mount>,
    pub is_root_read_only: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub user: i64,
    pub group: i64,
    pub groups: Vec<i64>,
    pub has_no_capabilities: bool,
    pub gets_no_privileges: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub is_read_only: bool,
}

impl Plan {
    /// `volumes`: directories of the volumes of the pod by name. An error means that a kubelet would not start the pod
    /// either.
    pub fn of(
        pod: &Pod,
        container: &Container,
        image: &Image,
        variables: BTreeMap<String, String>,
        volumes: &BTreeMap<String, PathBuf>,
    ) -> Result<Plan, String> {
        let given = |words: &Option<Vec<String>>| {
            words.iter().flatten().map(|word| expand(word, &variables)).collect::<Vec<_>>()
        };
        // As in images: arguments of the image apply only with its entrypoint.
        let command = given(&container.command);
        let mut argv = if command.is_empty() { image.entrypoint.clone() } else { command };
        argv.extend(given(&container.args));
        let of_image = |(target, source): (&PathBuf, &PathBuf)| Mount::read_only(source, target);
        let mut mounts: Vec<Mount> = image.content.iter().map(of_image).collect();
        for mount in container.volume_mounts.iter().flatten() {
            let volume = volumes.get(&mount.name).ok_or_else(|| format!("volume {} is not there", mount.name))?;
            let below = match (&mount.sub_path, &mount.sub_path_expr) {
                (Some(path), _) => path.clone(),
                (None, Some(path)) => expand(path, &variables),
                (None, None) => String::new(),
            };
            let (source, is_read_only) = (volume.join(below), mount.read_only.unwrap_or_default());
            mounts.push(Mount { source, target: PathBuf::from(&mount.mount_path), is_read_only });
        }
        let mut env = BTreeMap::from([("PATH".to_owned(), SEARCH_PATH.to_owned())]);
        env.insert("HOME".to_owned(), image.directory.display().to_string());
        env.extend(image.env.clone());
        env.insert("HOSTNAME".to_owned(), host_name(pod));
        env.extend(variables);
        let security = container.security_context.clone().unwrap_or_default();
        let directory = container.working_dir.clone().map_or_else(|| image.directory.clone(), PathBuf::from);
        Ok(Plan {
            argv,
            env,
            identity: identity(pod, container, image)?,
            directory,
            mounts,
            is_root_read_only: security.read_only_root_filesystem.unwrap_or_default(),
        })
    }

    /// Script for root in new mount and process namespaces; it becomes the program of the container. `scratch`: an
    /// empty directory.
    pub fn script(&self, scratch: &Path) -> String {
        let root = scratch.join("root");
        let inside = |path: &Path| quote(&format!("{}{}", root.display(), path.display()));
        let base = quote(&scratch.display().to_string());
        let mut lines = vec![
            "set -e".to_owned(),
            format!("mount -t tmpfs -o mode=755 none {base}"),
            format!("mkdir {base}/upper {base}/work {base}/root"),
            // The upper layer must not be below the lower one, so it is on the tmpfs.
            format!("mount -t overlay -o lowerdir=/,upperdir={base}/upper,workdir={base}/work none {base}/root"),
        ];
        for hidden in HIDDEN {
            let (mode, path) = (if hidden.ends_with("tmp") { "1777" } else { "755" }, inside(Path::new(hidden)));
            lines.push(format!("mkdir -p {path} && mount -t tmpfs -o mode={mode} none {path}"));
        }
        lines.push(format!("mount -t proc proc {base}/root/proc"));
        lines.push(format!("mount --rbind /dev {base}/root/dev"));
        let home = inside(&self.directory);
        let Identity { user, group, .. } = self.identity;
        lines.push(format!("[ -d {home} ] || {{ mkdir -p {home} && chown {user}:{group} {home}; }}"));
        // Parents first, as in container runtimes: a volume at /tmp does not hide one at /tmp/models.
        let mut mounts: Vec<&Mount> = self.mounts.iter().collect();
        mounts.sort_by_key(|mount| mount.target.components().count());
        lines.push(format!("place() {{ {} }}", PLACE.replace("ROOT", &quoted(&root))));
        let place = |mount: &&Mount| format!("place {} {}", quoted(&mount.source), quoted(&mount.target));
        lines.extend(mounts.iter().map(place));
        if self.is_root_read_only {
            let hidden: Vec<String> = HIDDEN.iter().map(|path| inside(Path::new(path))).collect();
            // Before mounts of this machine, and for each mount separately: never for a whole file system.
            let places = format!("{base}/root {}", hidden.join(" "));
            lines.push(format!("for place in {places}; do mount -o remount,bind,ro \"$place\"; done"));
        }
        for mount in mounts {
            // Again, for a mount point in a volume that was just mounted.
            lines.push(place(&mount));
            lines.push(format!("mount --bind {} \"$placed\"", quoted(&mount.source)));
            if mount.is_read_only {
                lines.push("mount -o remount,bind,ro \"$placed\"".to_owned());
            }
        }
        lines.push(format!("exec chroot {base}/root {}", self.program(&self.argv)));
        lines.join("\n")
    }

    /// A command as the user of the container, with its variables and directory, for a shell in its root.
    pub fn program(&self, argv: &[String]) -> String {
        let identity = &self.identity;
        let mut words =
            vec!["setpriv".to_owned(), format!("--reuid={}", identity.user), format!("--regid={}", identity.group)];
        let groups: Vec<String> = identity.groups.iter().map(ToString::to_string).collect();
        words.push(if groups.is_empty() {
            "--clear-groups".to_owned()
        } else {
            format!("--groups={}", groups.join(","))
        });
        if identity.has_no_capabilities {
            words.extend(["--bounding-set=-all".to_owned(), "--inh-caps=-all".to_owned()]);
        }
        if identity.gets_no_privileges {
            words.push("--no-new-privs".to_owned());
        }
        words.extend(["env".to_owned(), "-i".to_owned(), format!("--chdir={}", self.directory.display())]);
        words.extend(self.env.iter().map(|(name, value)| format!("{name}={value}")));
        words.extend(argv.iter().cloned());
        words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
    }
}

impl Mount {
    pub fn read_only(source: &Path, target: &Path) -> Mount {
        Mount { source: source.to_owned(), target: target.to_owned(), is_read_only: true }
    }
}

pub(super) fn host_name(pod: &Pod) -> String {
    let given = pod.spec.as_ref().and_then(|spec| spec.hostname.clone());
    given.or_else(|| pod.metadata.name.clone()).unwrap_or_default()
}

fn identity(pod: &Pod, container: &Container, image: &Image) -> Result<Identity, String> {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.clone()).unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let given = own.run_as_user.or(of_pod.run_as_user);
    let must_not_be_root = own.run_as_non_root.or(of_pod.run_as_non_root).unwrap_or_default();
    let user = given.unwrap_or_else(|| image.user.into());
    if must_not_be_root && given.is_none() && image.user_is_a_name {
        return Err(
            "container has runAsNonRoot and image has non-numeric user, cannot verify user is non-root".to_owned()
        );
    }
    if must_not_be_root && user == 0 {
        return Err("container has runAsNonRoot and image will run as root".to_owned());
    }
    let mut groups = of_pod.supplemental_groups.unwrap_or_default();
    groups.extend(of_pod.fs_group);
    let dropped = own.capabilities.and_then(|capabilities| capabilities.drop).unwrap_or_default();
    Ok(Identity {
        user,
        group: own.run_as_group.or(of_pod.run_as_group).unwrap_or(0),
        groups,
        has_no_capabilities: dropped.iter().any(|name| name == "ALL"),
        gets_no_privileges: own.allow_privilege_escalation == Some(false),
    })
}

fn quoted(path: &Path) -> String {
    quote(&path.display().to_string())
}

pub(super) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn image() -> Image {
        serde_json::from_value(json!({
            "name": "flwr/supernode:1.25.0", "entrypoint": ["flower-supernode"], "user": 49999, "user_is_a_name": true,
            "content": {"/opt/flower": "/home/me/flower"}, "directory": "/app",
        }))
        .expect("an image")
    }

    fn plan(pod: serde_json::Value) -> Result<Plan, String> {
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let container = pod.spec.as_ref().expect("a spec").containers[0].clone();
        let variables = BTreeMap::from([("INDEX".to_owned(), "3".to_owned())]);
        let volumes = BTreeMap::from([("keys".to_owned(), PathBuf::from("/v/keys"))]);
        Plan::of(&pod, &container, &image(), variables, &volumes)
    }

    #[test]
    fn arguments_follow_the_entrypoint_and_a_command_replaces_it() {
        let pod = |container| json!({"metadata": {"name": "a-3"}, "spec": {"containers": [container]}});
        let of_image = plan(pod(json!({"name": "c", "args": ["--index=$(INDEX)"]}))).expect("a plan");
        assert_eq!(of_image.argv, ["flower-supernode", "--index=3"]);
        assert_eq!(of_image.env["HOSTNAME"], "a-3");
        assert_eq!(of_image.env["HOME"], "/app");
        let own = plan(pod(json!({"name": "c", "command": ["sh", "-c"], "args": ["$$(INDEX)"]}))).expect("a plan");
        assert_eq!(own.argv, ["sh", "-c", "$(INDEX)"]);
    }

    #[test]
    fn a_volume_is_mounted_whole_or_in_part() {
        let mounts = json!([
            {"name": "keys", "mountPath": "/keys"},
            {"name": "keys", "mountPath": "/key", "subPathExpr": "node-$(INDEX)", "readOnly": true},
        ]);
        let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "c", "volumeMounts": mounts}]}});
        let mounts = plan(pod).expect("a plan").mounts;
        let (whole, part) = (&mounts[1], &mounts[2]);
        assert_eq!((whole.source.to_str(), whole.is_read_only), (Some("/v/keys/"), false));
        assert_eq!((part.source.to_str(), part.is_read_only), (Some("/v/keys/node-3"), true));
        let missing = json!({"metadata": {}, "spec": {"containers": [
            {"name": "c", "volumeMounts": [{"name": "none", "mountPath": "/x"}]}
        ]}});
        assert_eq!(plan(missing), Err("volume none is not there".to_owned()));
    }

    #[test]
    fn a_user_that_is_a_name_cannot_be_shown_not_to_be_root() {
        let pod = |security| {
            json!({"metadata": {}, "spec": {
                "securityContext": {"fsGroup": 7},
                "containers": [{"name": "c", "securityContext": security}],
            }})
        };
        assert!(plan(pod(json!({"runAsNonRoot": true}))).is_err_and(|why| why.contains("non-numeric")));
        let given = json!({
            "runAsNonRoot": true, "runAsUser": 49999, "capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false,
        });
        let identity = plan(pod(given)).expect("a plan").identity;
        let expected =
            Identity { user: 49999, group: 0, groups: vec![7], has_no_capabilities: true, gets_no_privileges: true };
        assert_eq!(identity, expected);
        assert!(plan(pod(json!({"runAsNonRoot": true, "runAsUser": 0}))).is_err());
    }

    #[test]
    fn words_reach_the_program_as_they_are() {
        let odd = "it's \"$HOME\" `x` \\ \n";
        let output =
            std::process::Command::new("sh").args(["-c", &format!("printf %s {}", quote(odd))]).output().expect("sh");
        assert_eq!(String::from_utf8(output.stdout).expect("text"), odd);
    }
}
