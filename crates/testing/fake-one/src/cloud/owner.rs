//! Users, ownership and permissions.

use std::collections::BTreeMap;

use trellis_digest::sha256_hex;

use super::{Cloud, Id, Refused};
use crate::template::Template;

#[derive(Debug, Clone)]
pub struct User {
    pub id: Id,
    pub gid: Id,
    pub name: String,
    pub password: String,
    pub tokens: Vec<String>,
    pub template: Template,
    /// Limits on the sum over the user's VMs: `VMS`, `CPU`, `MEMORY` in MB. Absent metrics are unlimited.
    pub vm_quota: BTreeMap<String, f64>,
}

/// Properties of all objects.
#[derive(Debug, Clone)]
pub struct Owned {
    pub id: Id,
    pub uid: Id,
    pub gid: Id,
    pub name: String,
    /// Use, manage, admin: for the owner, the group, and others.
    pub permissions: [bool; 9],
    pub lock: Option<Lock>,
}

#[derive(Debug, Clone)]
pub struct Lock {
    pub level: i64,
    pub owner: Id,
    pub time: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    Use = 0,
    Manage = 1,
    Admin = 2,
}

impl Right {
    fn name(self) -> &'static str {
        match self {
            Right::Use => "USE",
            Right::Manage => "MANAGE",
            Right::Admin => "ADMIN",
        }
    }
}

/// Objects that ordinary users may create, by the default ACL rules of OpenNebula.
const CREATABLE: [&str; 4] = ["VM", "TEMPLATE", "IMAGE", "DOCUMENT"];
const OWNER_ONLY: [bool; 9] = [true, true, false, false, false, false, false, false, false];

impl Cloud {
    pub fn add_user(&mut self, name: &str, password: &str, gid: Id) -> Id {
        let id = self.fresh("user");
        let mut template = Template::default();
        let secret = sha256_hex(&(self.random() >> 33).to_be_bytes());
        template.set("TOKEN_PASSWORD", secret);
        let (name, password) = (name.to_owned(), password.to_owned());
        self.users
            .insert(id, User { id, gid, name, password, tokens: Vec::new(), template, vm_quota: BTreeMap::new() });
        id
    }

    /// `user:secret`, where the secret is the password or a login token.
    pub fn login(&self, session: &str) -> Option<Id> {
        let (name, secret) = session.split_once(':')?;
        let user = self.users.values().find(|user| user.name == name)?;
        let right = user.password == secret || user.tokens.iter().any(|token| token == secret);
        right.then_some(user.id)
    }

    pub fn user_name(&self, id: Id) -> String {
        self.users.get(&id).map_or_else(|| id.to_string(), |user| user.name.clone())
    }

    pub fn group_name(id: Id) -> &'static str {
        if id == 0 { "oneadmin" } else { "users" }
    }

    pub(super) fn owned(&self, id: Id, uid: Id, name: &str) -> Owned {
        let gid = self.users.get(&uid).map_or(0, |user| user.gid);
        Owned { id, uid, gid, name: name.to_owned(), permissions: OWNER_ONLY, lock: None }
    }

    pub fn permits(&self, uid: Id, owned: &Owned, right: Right) -> bool {
        let gid = self.users.get(&uid).map_or(-1, |user| user.gid);
        let granted = |whose: usize| owned.permissions[whose * 3 + right as usize];
        gid == 0 || (owned.uid == uid && granted(0)) || (owned.gid == gid && granted(1)) || granted(2)
    }

    /// Whether the user may create objects of this kind. Ordinary users cannot create networks.
    pub fn check_create(&self, uid: Id, kind: &'static str) -> Result<(), Refused> {
        if self.users.get(&uid).is_none_or(|user| user.gid == 0) {
            return Ok(());
        }
        self.rights_used.borrow_mut().insert(format!("CREATE {kind}"));
        match CREATABLE.contains(&kind) {
            true => Ok(()),
            false => Err(Refused::unauthorised(uid, &format!("Not authorized to perform CREATE {kind}"))),
        }
    }

    /// Records a right that an ordinary user needs: `USE IMAGE`, `MANAGE VM`.
    pub fn note_right(&self, uid: Id, right: Right, kind: &str) {
        if self.users.get(&uid).is_some_and(|user| user.gid != 0) {
            self.rights_used.borrow_mut().insert(format!("{} {kind}", right.name()));
        }
    }

    /// `kind` is oned's name: `VM`, `TEMPLATE`, `IMAGE`, `NET`, `DOCUMENT`.
    pub fn check(&self, uid: Id, owned: &Owned, right: Right, kind: &str) -> Result<(), Refused> {
        self.note_right(uid, right, kind);
        if !self.permits(uid, owned, right) {
            let why = format!("Not authorized to perform {} {kind} [{}]", right.name(), owned.id);
            return Err(Refused::unauthorised(uid, &why));
        }
        match (&owned.lock, right) {
            (Some(_), Right::Manage | Right::Admin) => {
                Err(Refused::unauthorised(uid, &format!("{kind} is locked. [{}]", owned.id)))
            }
            _ => Ok(()),
        }
    }

    pub fn lock_of(&self, uid: Id, level: i64) -> Lock {
        Lock { level, owner: uid, time: self.now_s() }
    }

    /// Quota usage of the user's VMs.
    pub fn used(&self, uid: Id, metric: &str) -> f64 {
        let own = self.vms.values().filter(|vm| vm.owned.uid == uid && !vm.is_done());
        own.map(|vm| share(&vm.template, metric)).sum()
    }

    /// Checks whether another VM fits into the owner's quotas.
    pub(super) fn quota(&self, uid: Id, wanted: &Template) -> Result<(), Refused> {
        let Some(user) = self.users.get(&uid) else { return Ok(()) };
        let over =
            user.vm_quota.iter().find(|(metric, limit)| self.used(uid, metric) + share(wanted, metric) > **limit);
        match over {
            Some((metric, limit)) => {
                let why = format!("user [{uid}] limit of {limit} reached for {metric} quota in VM with ID: 0");
                Err(Refused::unauthorised(uid, &why))
            }
            None => Ok(()),
        }
    }
}

/// Quota usage of one VM.
fn share(template: &Template, metric: &str) -> f64 {
    match metric {
        "VMS" => 1.0,
        metric => template.get(metric).and_then(|value| value.parse().ok()).unwrap_or(0.0),
    }
}
