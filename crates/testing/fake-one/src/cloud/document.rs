//! Documents that OneFlow and others store in oned.

use super::{Cloud, Id, Owned, Refused};
use crate::template::Template;

pub const SERVICE: i64 = 100;
pub const SERVICE_TEMPLATE: i64 = 101;

/// Services are stored in `services`; their documents are rendered on request.
#[derive(Debug, Clone)]
pub struct Document {
    pub owned: Owned,
    pub kind: i64,
    pub template: Template,
    /// Body of a service template.
    pub body: Option<serde_json::Map<String, serde_json::Value>>,
}

impl Cloud {
    pub fn add_document(&mut self, uid: Id, name: &str, kind: i64, template: Template) -> Result<Id, Refused> {
        self.check_create(uid, "DOCUMENT")?;
        let id = self.fresh("document");
        let owned = self.owned(id, uid, name);
        self.documents.insert(id, Document { owned, kind, template, body: None });
        Ok(id)
    }

    pub fn document(&self, id: Id) -> Result<&Document, Refused> {
        self.documents.get(&id).ok_or_else(|| Refused::missing("document", id))
    }
}
