//! `trellis login`: signs in at a server with an identity, and approves a pending `flwr login`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tokio::net::TcpListener;
use trellis_api::{Client, IssuedToken, Proof};
use trellis_oidc::pkce;
use trellis_terminal::{OutputArgs, clean, moment, print, remark};
use trellis_wire::call::{ApproveLogin, WhoAmI};
use trellis_wire::token::Token;

use crate::browser;
use crate::remote::{self, CommandError, ServerArgs, SuperlinkArgs};

/// How long a user may take in the browser.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(600);
const SIGNED_IN: &str = "You are signed in. You can close this page.\n";
const REFUSED: &str = "The login was refused; the command line says why. You can close this page.\n";

const AFTER_HELP: &str = "\
Examples:
  trellis login --oidc --server https://trellis.example.org
  trellis status --server https://trellis.example.org           acts as you, until the session ends
  trellis login end --server https://trellis.example.org

`flwr login` opens a page of the SuperLink that asks for the token of an account. Without a
browser, copy the code at the end of the address that it prints, and approve it from any machine:
  trellis login approve 3F9A1C07BE --superlink link.example.org:8000 --token-file my.token
  trellis login approve 3F9A1C07BE --server https://trellis.example.org --federation lab
";

/// Sign in at a server with your organisation's account, or approve a `flwr login` that waits
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub struct LoginArgs {
    /// Sign in with the identity provider of the server (OpenID Connect)
    ///
    /// Opens a browser; without a display, shows a code for a browser on any machine.
    #[arg(long, required = true)]
    oidc: bool,
    /// Show a code for a browser on another machine, also where there is a display
    #[arg(long)]
    device: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    command: Option<LoginCommand>,
}

#[derive(Debug, Subcommand)]
enum LoginCommand {
    /// Approve the login with this code, for your account
    ///
    /// Approve only a login that you started yourself: the client gets the rights of your account. With --server and
    /// without --token-file, the account is that of your identity at the server (trellis login --oidc).
    Approve {
        /// The code at the end of the address that `flwr login` shows
        code: String,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        caller: SuperlinkArgs,
    },
    /// End your session at a server, and forget its token
    End {
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        server: ServerArgs,
    },
}

pub fn run(args: &LoginArgs) -> ExitCode {
    match &args.command {
        None => remote::run("trellis login", sign_in(args)),
        Some(LoginCommand::Approve { code, output, caller }) => {
            remote::run("trellis login approve", approve(code, output, caller))
        }
        Some(LoginCommand::End { output, server }) => remote::run("trellis login end", end(output, server)),
    }
}

async fn sign_in(args: &LoginArgs) -> Result<(), CommandError> {
    let (client, url, session) = args.server.to_sign_in()?;
    let provider = client.sign_on().await?;
    let IssuedToken { token, about } = match args.device || !browser::is_here() {
        true => by_device(&client).await?,
        false => by_browser(&client, &url, &provider.name).await?,
    };
    session.keep(&token).map_err(|error| CommandError::failed(error.to_string(), None))?;
    let until = about.expires_at.map_or_else(String::new, |time| format!(", confirmed until {}", moment(time)));
    let path = session.path().display().to_string();
    let result = json!({"server": url, "name": about.name, "role": about.role, "token_file": path});
    args.output.print(&result, || {
        print(&format!("signed in at {url} as {} ({}){until}\n", clean(&about.name), about.role.name()));
    });
    Ok(())
}

/// The provider sends the browser to the server, and the server sends it to a port of this command, with a code.
async fn by_browser(client: &Client, url: &str, provider: &str) -> Result<IssuedToken, CommandError> {
    let failed = |what: String| CommandError::failed(what, Some("try it with --device"));
    let no_port = |error| failed(format!("this machine has no free port for the browser's answer: {error}"));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(no_port)?;
    let port = listener.local_addr().map_err(no_port)?.port();
    let verifier = Token::generate().reveal().to_owned();
    let page = format!("{url}/api/v1/sign-on/start?challenge={}&port={port}", pkce::challenge(&verifier));
    remark(&format!("Sign in with {} in your browser: {page}", clean(provider)));
    let returned = browser::returned(&listener, |query| {
        let field = |name: &str| form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name);
        let code = field("code").map(|(_, code)| (Ok(code.into_owned()), SIGNED_IN));
        code.or_else(|| field("error").map(|(_, error)| (Err(error.into_owned()), REFUSED)))
    });
    let (returned, ()) = tokio::join!(tokio::time::timeout(BROWSER_TIMEOUT, returned), browser::open(&page));
    let late = |_| failed(format!("nobody signed in within {} minutes", BROWSER_TIMEOUT.as_secs() / 60));
    let code = returned.map_err(late)?.map_err(|error| CommandError::failed(clean(&error), None))?;
    let issued = client.sign_in(&Proof::Browser { code, verifier }).await?;
    issued.ok_or_else(|| failed("the server does not decide about the login".to_owned()))
}

/// The user approves the login in any browser.
async fn by_device(client: &Client) -> Result<IssuedToken, CommandError> {
    let login = client.device_login().await?;
    let page = login.url_with_code.as_ref().unwrap_or(&login.url);
    remark(&format!("Sign in at {} with the code {}", clean(page), clean(&login.user_code)));
    let proof = Proof::Device(login.device);
    let polled = async {
        loop {
            tokio::time::sleep(Duration::from_secs(login.poll_interval_s.max(1))).await;
            if let Some(issued) = client.sign_in(&proof).await? {
                return Ok::<_, CommandError>(issued);
            }
        }
    };
    let late = |_| CommandError::failed("the code has expired", Some("sign in again"));
    tokio::time::timeout(Duration::from_secs(login.expires_in_s), polled).await.map_err(late)?
}

async fn approve(code: &str, output: &OutputArgs, caller: &SuperlinkArgs) -> Result<(), CommandError> {
    let name = match caller.by_identity().await? {
        Some((found, federation)) => {
            found.client.approve_login(&federation, code).await?;
            found.client.me().await?.name
        }
        None => {
            let superlink = caller.superlink().await?;
            let me = superlink.call(&WhoAmI {}).await?;
            superlink.call(&ApproveLogin { code: code.to_owned() }).await?;
            me.name
        }
    };
    output.print(&json!({"name": name}), || print(&format!("the login continues as {}\n", clean(&name))));
    Ok(())
}

async fn end(output: &OutputArgs, server: &ServerArgs) -> Result<(), CommandError> {
    let (client, url, session) = server.to_sign_in()?;
    let Some(token) = session.token() else {
        return Err(CommandError::failed(
            format!("there is no session with {url}"),
            Some("trellis login --oidc begins one"),
        ));
    };
    let ended = client.with_token(token).sign_out().await;
    session.forget().map_err(|error| CommandError::failed(error.to_string(), None))?;
    // A server that does not know the token has ended the session already.
    if let Err(error) = ended
        && !error.is_unknown_caller()
    {
        return Err(error.into());
    }
    output.print(&json!({"server": url, "state": "ended"}), || print(&format!("the session with {url} has ended\n")));
    Ok(())
}
