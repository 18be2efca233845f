//! Accounts: their roles, permissions and states. [`crate::secret`] defines their secrets, [`crate::access`] checks
//! them.

use crate::Seconds;
use crate::audit;
use crate::port::{Read, Tx};
use crate::refusal::{Kind, Refusal};
use crate::secret;

/// The account of a SuperLink without accounts, as Flower names it. It has no row.
pub const NOBODY_ID: &str = "<id:none>";
pub const NOBODY_NAME: &str = "<name:none>";

const MAX_NAME_CHARS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Viewer,
    Runner,
    Admin,
}

/// The permission that a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Permission {
    /// See runs, logs and nodes.
    View,
    /// Start and stop runs.
    Run,
    /// Manage nodes, accounts and secrets.
    Administer,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Runner, Role::Admin];

    pub fn name(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Runner => "runner",
            Role::Admin => "admin",
        }
    }

    pub fn from_name(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }

    /// The table of permissions per role.
    pub fn may(self, permission: Permission) -> bool {
        match self {
            Role::Viewer => matches!(permission, Permission::View),
            Role::Runner => matches!(permission, Permission::View | Permission::Run),
            Role::Admin => matches!(permission, Permission::View | Permission::Run | Permission::Administer),
        }
    }
}

impl Permission {
    pub const ALL: [Permission; 3] = [Permission::View, Permission::Run, Permission::Administer];

    /// Returns the lowest role with this permission.
    fn min_role(self) -> Role {
        Role::ALL.into_iter().find(|role| role.may(self)).unwrap_or(Role::Admin)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Active,
    /// Has no permissions. The account is kept, so that its name and id are not used again.
    Disabled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    Disable,
    Enable,
    SetRole(Role),
}

impl State {
    pub const ALL: [State; 2] = [State::Active, State::Disabled];

    pub fn name(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Disabled => "disabled",
        }
    }
}

/// Returns the next state and role. Every event is legal in every state.
pub fn next(state: State, role: Role, event: Event) -> (State, Role) {
    match event {
        Event::Disable => (State::Disabled, role),
        Event::Enable => (State::Active, role),
        Event::SetRole(role) => (state, role),
    }
}

/// A stored account.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// Unique for ever: nodes and runs refer to their owner by this id.
    pub id: String,
    /// Unique name.
    pub name: String,
    pub created_at: Seconds,
    role: Role,
    state: State,
}

impl Account {
    pub fn new(id: &str, name: &str, role: Role, now: Seconds) -> Account {
        Account { id: id.to_owned(), name: name.to_owned(), created_at: now, role, state: State::Active }
    }

    /// Restores a stored account. For stores.
    pub fn restore(self, state: State) -> Account {
        Account { state, ..self }
    }

    pub fn role(&self) -> Role {
        self.role
    }

    pub fn state(&self) -> State {
        self.state
    }

    pub fn may(&self, permission: Permission) -> bool {
        self.state == State::Active && self.role.may(permission)
    }

    /// Fails if the account lacks the permission.
    pub fn needs(&self, permission: Permission) -> Result<(), Refusal> {
        if self.may(permission) {
            return Ok(());
        }
        let (name, role, required) = (&self.name, self.role.name(), permission.min_role().name());
        let text =
            format!("Account '{name}' has the role {role}; this needs the role {required}. Ask an administrator.");
        Err(Refusal::new(Kind::Denied, text))
    }

    /// Applies an event. Returns whether the account changed.
    pub fn apply(&mut self, event: Event) -> bool {
        let before = (self.state, self.role);
        (self.state, self.role) = next(self.state, self.role, event);
        before != (self.state, self.role)
    }
}

/// Creates an account. `by` is the acting account, for the audit log.
pub fn create(tx: &mut dyn Tx, id: &str, name: &str, role: Role, by: &str, now: Seconds) -> Result<Account, Refusal> {
    let mut errors = name_errors(name);
    let taken = tx.account_by_name(name)?.is_some();
    if taken {
        errors.push("it is taken");
    }
    if !errors.is_empty() {
        let kind = if taken { Kind::Precondition } else { Kind::Invalid };
        return Err(Refusal::new(kind, format!("Account name '{name:.100}' cannot be used: {}.", errors.join("; "))));
    }
    if tx.account(id)?.is_some() {
        return Err(Refusal::new(Kind::Transient, "account ID taken, try again"));
    }
    let account = Account::new(id, name, role, now);
    tx.put_account(&account)?;
    audit::record(tx, audit::Event::AccountCreated, by, name, role.name(), now)?;
    Ok(account)
}

/// Returns the active account of an identity, with this role. Creates it if there is none; `id` is for that.
pub fn of_identity(
    tx: &mut dyn Tx,
    id: &str,
    name: &str,
    role: Role,
    by: &str,
    now: Seconds,
) -> Result<Account, Refusal> {
    match tx.account_by_name(name)? {
        None => create(tx, id, name, role, by, now),
        Some(account) if account.state == State::Disabled => {
            Err(Refusal::new(Kind::Precondition, format!("Account '{name}' is disabled. Ask an administrator.")))
        }
        Some(_) => {
            set_role(tx, name, role, by, now)?;
            named(tx, name)
        }
    }
}

/// Returns all errors of a name.
fn name_errors(name: &str) -> Vec<&'static str> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.@".contains(c);
    let checks = [
        (name.is_empty(), "it is empty"),
        (name.chars().count() > MAX_NAME_CHARS, "it has more than 64 characters"),
        (!name.chars().all(allowed), "it has other characters than a-z, 0-9, '-', '_', '.' and '@'"),
        (name.starts_with(|c: char| "-_.@".contains(c)), "it begins with neither a letter nor a digit"),
    ];
    checks.into_iter().filter_map(|(wrong, what)| wrong.then_some(what)).collect()
}

/// Changes the role of an account. Idempotent.
pub fn set_role(tx: &mut dyn Tx, name: &str, role: Role, by: &str, now: Seconds) -> Result<(), Refusal> {
    let mut account = named(tx, name)?;
    let before = account.role;
    if account.apply(Event::SetRole(role)) {
        check_admin_remains(tx, &account)?;
        tx.put_account(&account)?;
        let detail = format!("{} to {}", before.name(), role.name());
        audit::record(tx, audit::Event::AccountRoleChanged, by, name, &detail, now)?;
    }
    Ok(())
}

/// Disables the account and revokes all its secrets for good. Idempotent.
pub fn disable(tx: &mut dyn Tx, name: &str, by: &str, now: Seconds) -> Result<(), Refusal> {
    let mut account = named(tx, name)?;
    if !account.apply(Event::Disable) {
        return Ok(());
    }
    check_admin_remains(tx, &account)?;
    tx.put_account(&account)?;
    let mut revoked = 0;
    for mut secret in tx.secrets_of(&account.id)? {
        if secret.apply(secret::Event::Revoke, now).is_ok_and(|changed| changed) {
            tx.put_secret(&secret)?;
            revoked += 1;
        }
    }
    audit::record(tx, audit::Event::AccountDisabled, by, name, &format!("{revoked} secrets revoked"), now)
}

/// Enables the account again. It needs new secrets.
pub fn enable(tx: &mut dyn Tx, name: &str, by: &str, now: Seconds) -> Result<(), Refusal> {
    let mut account = named(tx, name)?;
    if account.apply(Event::Enable) {
        tx.put_account(&account)?;
        audit::record(tx, audit::Event::AccountEnabled, by, name, account.role.name(), now)?;
    }
    Ok(())
}

/// Refuses a change of `changed` that would leave no active admin.
fn check_admin_remains(tx: &mut dyn Tx, changed: &Account) -> Result<(), Refusal> {
    let administers = |account: &Account| account.may(Permission::Administer);
    let others = tx.accounts()?;
    let mut others = others.iter().filter(|account| account.id != changed.id);
    if administers(changed) || others.any(administers) {
        return Ok(());
    }
    let text = format!("'{}' is the last active admin. Make another account admin first.", changed.name);
    Err(Refusal::new(Kind::Precondition, text))
}

pub(crate) fn named(read: &(impl Read + ?Sized), name: &str) -> Result<Account, Refusal> {
    read.account_by_name(name)?
        .ok_or_else(|| Refusal::new(Kind::NotFound, format!("There is no account '{name:.100}'.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every role, every permission.
    #[test]
    fn table_of_permissions() {
        let table = [
            (Role::Viewer, [true, false, false]),
            (Role::Runner, [true, true, false]),
            (Role::Admin, [true, true, true]),
        ];
        for (role, row) in table {
            for (permission, expected) in Permission::ALL.into_iter().zip(row) {
                assert_eq!(role.may(permission), expected, "{role:?} {permission:?}");
                let mut account = Account::new("1", "name", role, 0.0);
                assert_eq!((account.may(permission), account.needs(permission).is_ok()), (expected, expected));
                account.apply(Event::Disable);
                assert!(!account.may(permission), "a disabled account may do nothing");
            }
            assert_eq!(Role::from_name(role.name()), Some(role));
        }
        assert_eq!(Role::from_name("root"), None);
        let refusal = Account::new("1", "ann", Role::Viewer, 0.0).needs(Permission::Run).unwrap_err();
        assert_eq!(refusal.kind, Kind::Denied);
        assert!(refusal.to_string().contains("'ann' has the role viewer; this needs the role runner"), "{refusal}");
    }

    /// Every state, every event.
    #[test]
    fn table() {
        use State::*;
        let events = [Event::Disable, Event::Enable, Event::SetRole(Role::Runner), Event::SetRole(Role::Admin)];
        let (viewer, runner, admin) = (Role::Viewer, Role::Runner, Role::Admin);
        let rows = [
            ((Active, viewer), [(Disabled, viewer), (Active, viewer), (Active, runner), (Active, admin)]),
            ((Disabled, admin), [(Disabled, admin), (Active, admin), (Disabled, runner), (Disabled, admin)]),
        ];
        for ((state, role), row) in rows {
            for (event, expected) in events.into_iter().zip(row) {
                let mut account = Account::new("1", "name", role, 0.0).restore(state);
                let changed = account.apply(event);
                assert_eq!((account.state(), account.role()), expected, "{state:?} + {event:?}");
                assert_eq!(changed, expected != (state, role), "{state:?} + {event:?}");
            }
        }
    }

    #[test]
    fn all_errors_of_a_name_are_reported() {
        for valid in ["ann", "a", "0", "ci-bot_2.x", "ann@example.org", &"x".repeat(MAX_NAME_CHARS)] {
            assert_eq!(name_errors(valid), [""; 0], "{valid}");
        }
        for bad in ["", "Ann", "a b", "ünïcödé", "-a", ".a", "a\n", &"x".repeat(MAX_NAME_CHARS + 1)] {
            assert_eq!(name_errors(bad).len(), 1, "{bad}");
        }
        assert_eq!(name_errors(&format!("@{}", "X".repeat(MAX_NAME_CHARS))).len(), 3);
        assert!(!name_errors(NOBODY_NAME).is_empty(), "the name of the built-in account is reserved");
    }
}
