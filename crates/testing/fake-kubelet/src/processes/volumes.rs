//! Volumes of a pod as directories of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Pod, ServiceAccount, Volume, VolumeProjection};
use kube::api::PostParams;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, Client};

use super::expand::{Cluster, field};
use super::world::World;

const USUAL_FILE_MODE: u32 = 0o644;
/// Files are in a directory that is replaced as a whole; visible are links into it.
const CURRENT: &str = "..data";

/// Volumes of one pod.
pub(super) struct Volumes {
    directory: PathBuf,
    group: Option<u32>,
    /// Tokens of the service account, by volume and path. They outlive the tests.
    tokens: BTreeMap<(String, String), Vec<u8>>,
    written: BTreeMap<String, Files>,
}

type Files = BTreeMap<String, (Vec<u8>, u32)>;

enum Content {
    Directory(PathBuf),
    Files(Files),
}

impl Volumes {
    pub fn of(pod: &Pod, directory: &Path) -> Volumes {
        let security = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        let group = security.and_then(|security| security.fs_group).and_then(|group| u32::try_from(group).ok());
        Volumes { directory: directory.to_owned(), group, tokens: BTreeMap::new(), written: BTreeMap::new() }
    }

    /// Creates or updates all volumes. An error names what is missing.
    pub async fn prepare(
        &mut self,
        pod: &Pod,
        world: &World,
        client: &Client,
        claims: &Path,
    ) -> Result<BTreeMap<String, PathBuf>, String> {
        let mut places = BTreeMap::new();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            self.fetch_tokens(pod, volume, client).await?;
            let place = match self.content(pod, volume, world, claims)? {
                Content::Directory(place) => self.directory_for(&place, volume)?,
                Content::Files(files) => self.write(&volume.name, files)?,
            };
            places.insert(volume.name.clone(), place);
        }
        Ok(places)
    }

    async fn fetch_tokens(&mut self, pod: &Pod, volume: &Volume, client: &Client) -> Result<(), String> {
        let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        for wanted in sources.filter_map(|source| source.service_account_token.as_ref()) {
            let key = (volume.name.clone(), wanted.path.clone());
            if self.tokens.contains_key(&key) {
                continue;
            }
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
            let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
            let asked = TokenRequest::default();
            let token = accounts.create_token_request(account, &PostParams::default(), &asked).await;
            let token = token.map_err(|why| format!("no token of the service account {account}: {why}"))?;
            self.tokens.insert(key, token.status.map(|status| status.token.into_bytes()).unwrap_or_default());
        }
        Ok(())
    }

    fn content(&self, pod: &Pod, volume: &Volume, world: &World, claims: &Path) -> Result<Content, String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        if volume.empty_dir.is_some() {
            return Ok(Content::Directory(self.directory.join(&volume.name)));
        }
        if let Some(host) = &volume.host_path {
            return Ok(Content::Directory(PathBuf::from(&host.path)));
        }
        if let Some(claim) = &volume.persistent_volume_claim {
            let found = world.claims.get(&ObjectRef::new(&claim.claim_name).within(namespace));
            let name = found.and_then(|found| found.spec.clone()?.volume_name);
            let name = name.ok_or_else(|| format!("claim {} has no volume", claim.claim_name))?;
            return Ok(Content::Directory(claims.join(name)));
        }
        let mut files = Files::new();
        if let Some(secret) = &volume.secret {
            let (name, mode) = (secret.secret_name.as_deref().unwrap_or_default(), secret.default_mode);
            let is_optional = secret.optional.unwrap_or_default();
            add_secret(&mut files, world, namespace, name, secret.items.as_deref(), mode, is_optional)?;
        } else if let Some(map) = &volume.config_map {
            let is_optional = map.optional.unwrap_or_default();
            add_map(&mut files, world, namespace, &map.name, map.items.as_deref(), map.default_mode, is_optional)?;
        } else if let Some(downward) = &volume.downward_api {
            add_fields(&mut files, pod, downward.items.as_deref().unwrap_or_default(), downward.default_mode)?;
        } else if let Some(projected) = &volume.projected {
            for source in projected.sources.iter().flatten() {
                self.add_projected(&mut files, pod, volume, source, world, projected.default_mode)?;
            }
        } else {
            return Err(format!("volume {} is of a kind that is not known here", volume.name));
        }
        Ok(Content::Files(files))
    }

    fn add_projected(
        &self,
        files: &mut Files,
        pod: &Pod,
        volume: &Volume,
        source: &VolumeProjection,
        world: &World,
        mode: Option<i32>,
    ) -> Result<(), String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        if let Some(secret) = &source.secret {
            let is_optional = secret.optional.unwrap_or_default();
            add_secret(files, world, namespace, &secret.name, secret.items.as_deref(), mode, is_optional)?;
        }
        if let Some(map) = &source.config_map {
            let is_optional = map.optional.unwrap_or_default();
            add_map(files, world, namespace, &map.name, map.items.as_deref(), mode, is_optional)?;
        }
        if let Some(downward) = &source.downward_api {
            add_fields(files, pod, downward.items.as_deref().unwrap_or_default(), mode)?;
        }
        if let Some(wanted) = &source.service_account_token {
            let token = self.tokens.get(&(volume.name.clone(), wanted.path.clone())).cloned().unwrap_or_default();
            files.insert(wanted.path.clone(), (token, mode_of(None, mode)));
        }
        Ok(())
    }

    fn directory_for(&self, place: &Path, volume: &Volume) -> Result<PathBuf, String> {
        let failed = |why: std::io::Error| format!("{}: {why}", place.display());
        if volume.host_path.is_none() && !place.exists() {
            fs::create_dir_all(place).map_err(failed)?;
            // As for a new disk or emptyDir: the group of the pod may write.
            chown(place, None, self.group).map_err(failed)?;
            let mode = if volume.empty_dir.is_some() { 0o2777 } else { 0o2775 };
            fs::set_permissions(place, fs::Permissions::from_mode(mode)).map_err(failed)?;
        }
        Ok(place.to_owned())
    }

    /// Updates atomically: programs see all old or all new files.
    fn write(&mut self, name: &str, files: Files) -> Result<PathBuf, String> {
        let place = self.directory.join(name);
        if self.written.get(name) == Some(&files) {
            return Ok(place);
        }
        self.write_files(&place, &files, self.written.contains_key(name))
            .map_err(|why| format!("{}: {why}", place.display()))?;
        self.written.insert(name.to_owned(), files);
        Ok(place)
    }

    fn write_files(&self, place: &Path, files: &Files, is_again: bool) -> std::io::Result<()> {
        fs::create_dir_all(place)?;
        let former = fs::read_link(place.join(CURRENT)).ok();
        let number = if is_again { jiff::Timestamp::now().as_nanosecond() } else { 0 };
        let version = format!("..{number}");
        let directory = place.join(&version);
        for (path, (content, mode)) in files {
            let file = directory.join(path);
            fs::create_dir_all(file.parent().unwrap_or(&directory))?;
            fs::write(&file, content)?;
            // The group of the pod has the permissions of the owner.
            let mode = if self.group.is_some() { mode | (mode & 0o400) >> 3 } else { *mode };
            fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
            chown(&file, None, self.group)?;
        }
        fs::create_dir_all(&directory)?;
        symlink(&version, place.join("..new"))?;
        fs::rename(place.join("..new"), place.join(CURRENT))?;
        for first in files.keys().filter_map(|path| path.split('/').next()) {
            if place.join(first).symlink_metadata().is_err() {
                symlink(Path::new(CURRENT).join(first), place.join(first))?;
            }
        }
        former.map_or(Ok(()), |former| fs::remove_dir_all(place.join(former)))
    }
}

fn add_secret(
    files: &mut Files,
    world: &World,
    namespace: &str,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: Option<i32>,
    is_optional: bool,
) -> Result<(), String> {
    let found = world.secret(namespace, name);
    if found.is_none() && !is_optional {
        return Err(format!("secret \"{name}\" not found"));
    }
    let data = found.and_then(|secret| secret.data).unwrap_or_default();
    add_keys(files, data.into_iter().map(|(key, value)| (key, value.0)).collect(), items, mode, is_optional)
}

fn add_map(
    files: &mut Files,
    world: &World,
    namespace: &str,
    name: &str,
    items: Option<&[KeyToPath]>,
    mode: Option<i32>,
    is_optional: bool,
) -> Result<(), String> {
    let found = world.config_map(namespace, name);
    if found.is_none() && !is_optional {
        return Err(format!("configmap \"{name}\" not found"));
    }
    let map = found.unwrap_or_default();
    let mut data: BTreeMap<_, _> =
        map.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes())).collect();
    data.extend(map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0)));
    add_keys(files, data, items, mode, is_optional)
}

fn add_keys(
    files: &mut Files,
    mut data: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    mode: Option<i32>,
    is_optional: bool,
) -> Result<(), String> {
    let Some(items) = items else {
        files.extend(data.into_iter().map(|(key, value)| (key, (value, mode_of(None, mode)))));
        return Ok(());
    };
    for item in items {
        match data.remove(&item.key) {
            Some(value) => drop(files.insert(item.path.clone(), (value, mode_of(item.mode, mode)))),
            None if is_optional => {}
            None => return Err(format!("references non-existent key: {}", item.key)),
        }
    }
    Ok(())
}

fn add_fields(files: &mut Files, pod: &Pod, items: &[DownwardAPIVolumeFile], mode: Option<i32>) -> Result<(), String> {
    for item in items {
        let Some(wanted) = &item.field_ref else {
            return Err("a file that is not of a field is not known here".to_owned());
        };
        files.insert(item.path.clone(), (field(pod, wanted)?.into_bytes(), mode_of(item.mode, mode)));
    }
    Ok(())
}

fn mode_of(own: Option<i32>, usual: Option<i32>) -> u32 {
    own.or(usual).and_then(|mode| u32::try_from(mode).ok()).unwrap_or(USUAL_FILE_MODE)
}
