//! Images: being copied, ready, or failed.

use super::{Cloud, Id, Owned, Refused, Right, single};
use crate::template::Template;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageState {
    Ready = 1,
    Used = 2,
    Disabled = 3,
    Locked = 4,
    Error = 5,
    UsedPersistent = 8,
}

#[derive(Debug, Clone)]
pub struct Image {
    pub owned: Owned,
    pub kind: i64,
    pub persistent: bool,
    pub registered: u64,
    pub path: String,
    pub size_mb: u64,
    pub state: ImageState,
    pub datastore: Id,
    pub vms: Vec<Id>,
    pub template: Template,
    ready_at_ms: u64,
}

/// Default datastores of a new OpenNebula.
pub const DATASTORES: [(Id, &str, i64); 3] = [(0, "system", 1), (1, "default", 0), (2, "files", 2)];
const KINDS: [&str; 8] = ["OS", "CDROM", "DATABLOCK", "KERNEL", "RAMDISK", "CONTEXT", "BACKUP", "FILESYSTEM"];

impl Cloud {
    pub fn add_image(&mut self, uid: Id, mut template: Template, datastore: Id) -> Result<Id, Refused> {
        self.check_create(uid, "IMAGE")?;
        // In a new OpenNebula ordinary users may use the datastores.
        self.note_right(uid, Right::Use, "DATASTORE");
        if !DATASTORES.iter().any(|(id, ..)| *id == datastore) {
            return Err(Refused::missing("datastore", datastore));
        }
        let Some(name) = single(template.erase("NAME")) else {
            return Err(Refused::allocate("image", "No NAME in template."));
        };
        let taken = self.images.values().find(|image| image.owned.name == name && image.owned.uid == uid);
        if let Some(other) = taken {
            let text = format!("NAME is already taken by IMAGE {}.", other.owned.id);
            return Err(Refused::allocate("image", &text));
        }
        let kind = single(template.erase("TYPE")).unwrap_or_else(|| "OS".to_owned());
        let Some(kind) = KINDS.iter().position(|known| *known == kind.to_uppercase()) else {
            return Err(Refused::allocate("image", "Unknown TYPE in template."));
        };
        let path = single(template.erase("PATH")).unwrap_or_default();
        let from = single(template.erase("FROM_APP"));
        let size = single(template.erase("SIZE")).and_then(|size| size.parse().ok());
        if path.is_empty() && from.is_none() && size.is_none() {
            return Err(Refused::allocate("image", "No PATH nor SOURCE in template."));
        }
        let persistent = single(template.erase("PERSISTENT")).is_some_and(|said| said.eq_ignore_ascii_case("yes"));
        let id = self.fresh("image");
        let image = Image {
            owned: self.owned(id, uid, &name),
            kind: kind as i64,
            persistent,
            registered: self.now_s(),
            path,
            size_mb: size.unwrap_or(1024),
            state: ImageState::Locked,
            datastore,
            vms: Vec::new(),
            template,
            ready_at_ms: self.now_ms + self.pace.image_ms,
        };
        self.images.insert(id, image);
        Ok(id)
    }

    pub fn image(&self, id: Id) -> Result<&Image, Refused> {
        self.images.get(&id).ok_or_else(|| Refused::missing("image", id))
    }

    pub fn delete_image(&mut self, id: Id) -> Result<(), Refused> {
        let users = self.image(id)?.vms.len();
        if users > 0 {
            let why = format!("Cannot delete image. There are {users} VMs using it.");
            return Err(Refused::new(super::ACTION, why));
        }
        self.images.remove(&id);
        Ok(())
    }

    pub(super) fn advance_images(&mut self) {
        let now_ms = self.now_ms;
        let failing = &self.faults.images_in_error;
        for image in self.images.values_mut().filter(|image| image.state == ImageState::Locked) {
            if now_ms < image.ready_at_ms {
                continue;
            }
            let fails = failing.iter().any(|part| image.owned.name.contains(part.as_str()));
            if fails {
                image.template.set("ERROR", "Error copying image in the datastore: no space left on device");
            }
            image.state = if fails { ImageState::Error } else { ImageState::Ready };
        }
    }

    pub(super) fn image_used(&mut self, id: Id, vm: Id) {
        if let Some(image) = self.images.get_mut(&id) {
            image.vms.push(vm);
            if image.state == ImageState::Ready {
                image.state = if image.persistent { ImageState::UsedPersistent } else { ImageState::Used };
            }
        }
    }

    pub(super) fn images_left(&mut self, vm: Id) {
        for image in self.images.values_mut() {
            image.vms.retain(|user| *user != vm);
            if image.vms.is_empty() && matches!(image.state, ImageState::Used | ImageState::UsedPersistent) {
                image.state = ImageState::Ready;
            }
        }
    }
}
