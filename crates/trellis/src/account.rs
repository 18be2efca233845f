//! `trellis account`: the accounts of a SuperLink and their roles.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use trellis_core::account::Role;
use trellis_terminal::{Cell, Column, Format, OutputArgs, Table, Tone, clean, moment, print, print_as};
use trellis_wire::call::{CreateAccount, DisableAccount, EnableAccount, ListAccounts, SetRole};

use crate::remote::{self, CommandError, SaveArgs, SuperlinkArgs};

const AFTER_HELP: &str = "\
Roles, each with all that the ones before it may:
  Roles; each includes the rights of those before it:
  viewer   see runs, logs and nodes
  runner   start and stop its own runs
admin    everything: nodes, accounts, tokens, the audit log, and runs of other accounts
Examples:
  trellis account add ada --role runner --save ada.token --token-file admin.token
  trellis account role ada admin
  trellis account disable ada
";

/// Manage the accounts of a SuperLink and their roles
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, subcommand_required = true, arg_required_else_help = true)]
pub struct AccountArgs {
    #[command(subcommand)]
    command: AccountCommand,
}

#[derive(Debug, Subcommand)]
enum AccountCommand {
    /// Add an account; its first token is printed, once
    Add {
        /// Name of the account; cannot be changed later
        name: String,
        /// Role of the account
        #[arg(long)]
        role: RoleName,
        #[command(flatten)]
        save: SaveArgs,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        caller: SuperlinkArgs,
    },
    /// List the accounts
    Ls {
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        caller: SuperlinkArgs,
    },
    /// Give an account another role, from its next call on
    Role {
        name: String,
        role: RoleName,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        caller: SuperlinkArgs,
    },
    /// Turn an account off; all its tokens end at once, for ever
    Disable {
        name: String,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        caller: SuperlinkArgs,
    },
    /// Enable a disabled account; it needs a new token (trellis token add)
    Enable {
        name: String,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        caller: SuperlinkArgs,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum RoleName {
    /// See runs, logs and nodes
    Viewer,
    /// And start and stop runs of its own
    Runner,
    /// And manage nodes, accounts and tokens
    Admin,
}

impl From<RoleName> for trellis_api::Role {
    fn from(name: RoleName) -> trellis_api::Role {
        match name {
            RoleName::Viewer => trellis_api::Role::Viewer,
            RoleName::Runner => trellis_api::Role::Runner,
            RoleName::Admin => trellis_api::Role::Admin,
        }
    }
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Role {
        match name {
            RoleName::Viewer => Role::Viewer,
            RoleName::Runner => Role::Runner,
            RoleName::Admin => Role::Admin,
        }
    }
}

pub fn run(args: &AccountArgs) -> ExitCode {
    match &args.command {
        AccountCommand::Add { name, role, save, output, caller } => {
            remote::run("trellis account add", add(name, (*role).into(), save, output, caller))
        }
        AccountCommand::Ls { output, caller } => remote::run("trellis account ls", list(output, caller)),
        AccountCommand::Role { name, role, output, caller } => remote::run("trellis account role", async {
            let role: Role = (*role).into();
            caller.superlink().await?.call(&SetRole { name: name.clone(), role: role.name().to_owned() }).await?;
            let result = json!({"name": name, "role": role.name()});
            output.print(&result, || print(&format!("{name} has the role {}\n", role.name())));
            Ok(())
        }),
        AccountCommand::Disable { name, output, caller } => remote::run("trellis account disable", async {
            caller.superlink().await?.call(&DisableAccount { name: name.clone() }).await?;
            output.print(&json!({"name": name, "state": "disabled"}), || print(&format!("{name} is disabled\n")));
            Ok(())
        }),
        AccountCommand::Enable { name, output, caller } => remote::run("trellis account enable", async {
            caller.superlink().await?.call(&EnableAccount { name: name.clone() }).await?;
            output.print(&json!({"name": name, "state": "active"}), || print(&format!("{name} is enabled\n")));
            Ok(())
        }),
    }
}

async fn add(
    name: &str,
    role: Role,
    save: &SaveArgs,
    output: &OutputArgs,
    caller: &SuperlinkArgs,
) -> Result<(), CommandError> {
    let superlink = caller.superlink().await?;
    let destination = save.prepare()?;
    let new = superlink.call(&CreateAccount { name: name.to_owned(), role: role.name().to_owned() }).await?;
    let made = format!("Account {} was added as {}, with a token.", clean(&new.name), clean(&new.role));
    destination.save(output.format, &made, &new.token, &new);
    Ok(())
}

async fn list(output: &OutputArgs, caller: &SuperlinkArgs) -> Result<(), CommandError> {
    let answer = caller.superlink().await?.call(&ListAccounts {}).await?;
    if output.format != Format::Table {
        print_as(output.format, &answer);
        return Ok(());
    }
    let mut table = Table::new([
        Column::whole("NAME"),
        Column::whole("ROLE"),
        Column::whole("STATE"),
        Column::whole("CREATED"),
        Column::cut("ID"),
    ]);
    for account in &answer.accounts {
        let tone = if account.state == "active" { Tone::Good } else { Tone::Quiet };
        table.row([
            account.name.as_str().into(),
            account.role.as_str().into(),
            Cell::new(&account.state, tone),
            moment(account.created_at).into(),
            account.id.as_str().into(),
        ]);
    }
    table.print();
    Ok(())
}
