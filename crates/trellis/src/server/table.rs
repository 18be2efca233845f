//! The settings of `trellis server`, one row each. `check` checks how they fit together.

use super::check::Checked;
use crate::settings::Role::HiddenAction;
use crate::settings::kind::Switch;
use crate::settings::{Program, group, log_group};

const AFTER_HELP: &str = "\
Examples:
  For this machine, until Ctrl-C; federations continue without it:
    {called}

  For a network, with TLS:
    {called} --listen 0.0.0.0:7766 --certificate server.pem --key server.key --trust ca.crt \\
        --host trellis.example.org

  With the users of an identity provider, next to tokens:
    {called} --oidc-issuer https://login.example.org --oidc-client-id trellis \
        --oidc-client-secret-file secret --oidc-role researchers=runner --oidc-role platform=admin

  A second server with separate federations:
    {called} --home ~/second --listen 127.0.0.1:0

If no server runs, `trellis up` and `trellis apply` start one. The token of the first
administrator is in admin.token in the home; the API creates others.

Each setting can be given as an environment variable too: TRELLIS_LISTEN, TRELLIS_HOME, ...

Exit codes: 0 stopped on request; 1 failed (another server uses the home, the port is in use);
2 refused arguments; 130, 143 stopped by a second signal.
";

pub static SERVER: Program<Checked> = Program {
    about: "Keep federations in the state that their documents describe; serve the API and the page\n\n\
            Federations outlive their server: after a restart it continues where it stopped.",
    after_help: AFTER_HELP,
    groups: &[
        group! { "";
            /// Address and port of the API and the page [default: 127.0.0.1:7766, or a free port if that is in use]
            "listen" "IP:PORT", check |checker| checker.listen();

            /// Directory for all data of the server [default: trellis in XDG_STATE_HOME or ~/.local/state]
            "home" "DIR", check |checker| checker.home();

            /// PEM file with the server's certificate and intermediate certificates
            "certificate" "FILE", check |checker| checker.tls();

            /// PEM file with the key of the certificate
            "key" "FILE";

            /// PEM file with the authorities that clients trust
            "trust" "FILE";

            /// Name by which clients call the server; may be given several times
            ///
            /// Requests under other names are refused, because a web page can give its own name to any address (DNS rebinding).
            /// IP addresses, names without a dot, and names of the certificate are always served.
            "host" ["HOST"], check |checker| checker.hosts();

            /// Serve a network without TLS: tokens can be read on the way
            "allow-insecure-network": Switch => allow_insecure_network;

            "kept" (HiddenAction): Switch => kept;

            /// Simulate all sites instead of starting processes, to measure the server alone
            "simulated-sites" (HiddenAction): Switch => simulated_sites;
        },
        group! { "Single sign-on (OpenID Connect)";
            /// Issuer of your identity provider; its users sign in to page, API and commands
            ///
            /// Tokens stay valid beside it. The provider's client needs the redirect URL URL/api/v1/sign-on/callback.
            "oidc-issuer" "URL", check |checker| checker.sign_on();

            /// Id of the client that the provider has for this server
            "oidc-client-id" "ID";

            /// File with the secret of the client; without it, the client is public
            "oidc-client-secret-file" "FILE";

            /// Role of a group of the provider: viewer, runner or admin; may be given several times
            ///
            /// The highest role of a user's groups counts. Users without such a group are refused.
            "oidc-role" ["GROUP=ROLE"];

            /// Claim with the groups of a user [default: groups]
            "oidc-groups-claim" "CLAIM";

            /// Claim with the name of a user, unique and not changed by users themselves [default: email]
            "oidc-name-claim" "CLAIM";

            /// Name of the provider on the page [default: the host of the issuer]
            "oidc-label" "NAME";

            /// PEM file with the authorities for the provider's certificate [default: those of the system]
            "oidc-trust" "FILE";

            /// Time after which users sign in again [default: 12h]
            "oidc-session" "DURATION";

            /// How often the provider confirms a session: a user that it refuses loses access [default: 15m]
            ///
            /// A provider that does not answer ends no session before four of these intervals have passed.
            "oidc-confirm" "DURATION";

            /// URL of this server for browsers [default: that of --listen]
            "url" "URL", check |checker| checker.url();
        },
        log_group!(),
    ],
    subcommands: |command| command,
};
