//! The table of routes: what the API serves, who may ask for it, what goes in and what comes out.

use futures_util::FutureExt as _;
use http::Method;
use trellis_api::{
    Apps, AuditEntry, Connection, Event, FederationDetail, FederationSummary, IssuedToken, LogPart, LoginApproval, Me,
    ModelFile, NewRun, NewToken, Node, NodeChange, PastFederation, PlanReport, Pool, Role, Run, Token, TrainingRounds,
};

use super::fault::Kind;
use super::query::{Form, Parameter};
use super::route::{Content, Given, Route, Takes, list_of, of, page_of};
use super::{about, audit, events, federations, list, logins, logs, models, runs, tokens};

/// Of bodies that are neither documents nor bundles.
const SMALL_BODY_BYTES: usize = 64 << 10;
/// Of a Federation document.
pub const DOCUMENT_BYTES: usize = 1 << 20;
/// A bundle as large as a SuperLink takes it, 10 MiB, in base64, and its settings.
const NEW_RUN_BYTES: usize = 14 << 20;
/// A round that nobody reaches; JSON numbers are exact up to here.
const MOST_ROUNDS: u64 = 1 << 53;

const DRY_RUN: Parameter = Parameter {
    name: "dry_run",
    about: "Says what would be done, as a PlanReport, and does nothing.",
    form: Form::Flag,
};
const PURGE: Parameter = Parameter {
    name: "purge",
    about: "Its runs go with it; those of a federation that is gone already go at once.",
    form: Form::Flag,
};
const IF_MATCH: Parameter = Parameter {
    name: "if-match",
    about: "Only if the document is of this revision, the ETag of a FederationDetail; `*`: only if there is one.",
    form: Form::Text { pattern: r#"^("[0-9]{1,15}"|\*)$"#, longest: 17, fits: federations::is_tag },
};
const IF_NONE_MATCH: Parameter =
    Parameter { name: "if-none-match", about: "`*`: only if there is none.", form: Form::Word("*") };
const IDEMPOTENCY_KEY: Parameter = Parameter {
    name: "idempotency-key",
    about: "A word of your choice, new for each run. Sent again with the same body within a day, the answer is the same and \
            no second run is started.",
    form: Form::Text { pattern: "^[!-~]{1,255}$", longest: 255, fits: is_word },
};
const AFTER_ROUND: Parameter = Parameter {
    name: "after",
    about: "Reports of later rounds only.",
    form: Form::Number { least: 0, most: MOST_ROUNDS },
};
const AFTER_ENTRY: Parameter = Parameter { about: "Entries after this number only.", ..AFTER_ROUND };
const AFTER_MOMENT: Parameter = Parameter {
    name: "after",
    about: "What comes after this place only: `next` of the part before.",
    form: Form::Text { pattern: r"^([0-9]{1,15}(\.[0-9]{1,17})?)?$", longest: 33, fits: is_moment },
};
const AFTER_PLACE: Parameter = Parameter {
    form: Form::Text { pattern: "^[0-9]{1,19}-[0-9]{1,19}$", longest: 39, fits: is_place },
    ..AFTER_MOMENT
};
const WAIT: Parameter =
    Parameter { name: "wait", about: "Waits some seconds for more where there is none.", form: Form::Flag };
const ONE_FEDERATION: Parameter = Parameter {
    name: "federation",
    about: "Events of this one only.",
    form: Form::Text { pattern: "^[!-~]{1,255}$", longest: 255, fits: is_word },
};

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn are_digits(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_moment(text: &str) -> bool {
    match text.split_once('.') {
        Some((whole, rest)) => are_digits(whole, 15) && are_digits(rest, 17),
        None => text.is_empty() || are_digits(text, 15),
    }
}

fn is_place(text: &str) -> bool {
    text.split_once('-').is_some_and(|(file, offset)| are_digits(file, 19) && are_digits(offset, 19))
}

macro_rules! answered_by {
    ($handler:path) => {
        |api, call| $handler(api, call).boxed()
    };
}

/// What most routes have: they take nothing, and give one thing.
const PLAIN: Route = Route {
    method: Method::GET,
    path: "",
    role: Role::Viewer,
    id: "",
    about: "",
    query: &[],
    headers: &[],
    takes: Takes::Nothing,
    gives: &[],
    refuses: &[],
    handler: answered_by!(about::me),
};

macro_rules! gives {
    ($($status:literal $about:literal $content:expr),*) => {
        &[$(Given { status: $status, about: $about, content: $content, tagged: false }),*]
    };
}

const NONE: Content = Content::Nothing;

pub static ROUTES: &[Route] = &[
    Route {
        path: "/me",
        id: "me",
        about: "Whose token this is",
        gives: gives![200 "You." Content::Json(&[of::<Me>])],
        handler: answered_by!(about::me),
        ..PLAIN
    },
    Route {
        path: "/federations",
        id: "list_federations",
        about: "Federations, by name",
        query: list::PARAMETERS,
        gives: gives![200 "A page." Content::Json(&[page_of::<FederationSummary>])],
        handler: answered_by!(federations::list),
        ..PLAIN
    },
    Route {
        path: "/federations/{federation}",
        id: "get_federation",
        about: "A federation: its document, and what was seen and decided last",
        gives: &[Given {
            status: 200,
            about: "The federation; the nodes are a list of their own.",
            content: Content::Json(&[of::<FederationDetail>]),
            tagged: true,
        }],
        handler: answered_by!(federations::get),
        ..PLAIN
    },
    Route {
        method: Method::PUT,
        path: "/federations/{federation}",
        role: Role::Admin,
        id: "apply_federation",
        about: "Keep a federation as this document says",
        query: &[DRY_RUN],
        headers: &[IF_MATCH, IF_NONE_MATCH],
        takes: Takes::Document,
        gives: &[
            Given {
                status: 200,
                about: "It is kept, changed or not; with `dry_run` what would be done.",
                content: Content::Json(&[of::<FederationDetail>, of::<PlanReport>]),
                tagged: true,
            },
            Given { status: 201, about: "It is new.", content: Content::Json(&[of::<FederationDetail>]), tagged: true },
        ],
        refuses: &[Kind::CONFLICT, Kind::CHANGED],
        handler: answered_by!(federations::apply),
    },
    Route {
        method: Method::DELETE,
        path: "/federations/{federation}",
        role: Role::Admin,
        id: "delete_federation",
        about: "Take a federation away; repeated, the same. Its runs stay listed unless it is purged",
        query: &[PURGE],
        gives: gives![202 "It is going." NONE],
        refuses: &[Kind::CONFLICT],
        handler: answered_by!(federations::delete),
        ..PLAIN
    },
    Route {
        path: "/past-federations",
        id: "list_past_federations",
        about: "Federations that are gone and whose runs are kept, by name",
        gives: gives![200 "All of them." Content::Json(&[list_of::<PastFederation>])],
        handler: answered_by!(federations::past),
        ..PLAIN
    },
    Route {
        method: Method::POST,
        path: "/plan",
        id: "plan",
        about: "What would be done for a document, and why not more",
        takes: Takes::Document,
        gives: gives![200 "The plan." Content::Json(&[of::<PlanReport>])],
        refuses: &[Kind::FORBIDDEN, Kind::CONFLICT, Kind::BUSY],
        handler: answered_by!(federations::plan),
        ..PLAIN
    },
    Route {
        path: "/federations/{federation}/plan",
        id: "current_plan",
        about: "What is to be done now, and why not more: why is nothing happening?",
        gives: gives![200 "The plan." Content::Json(&[of::<PlanReport>])],
        refuses: &[Kind::CONFLICT, Kind::BUSY],
        handler: answered_by!(federations::current_plan),
        ..PLAIN
    },
    Route {
        method: Method::PUT,
        path: "/federations/{federation}/pools/{pool}",
        role: Role::Admin,
        id: "scale_pool",
        about: "Change how many nodes a pool shall have, as a change of the document",
        takes: Takes::Json { shape: of::<Pool>, most_bytes: SMALL_BODY_BYTES },
        gives: &[Given {
            status: 200,
            about: "The federation.",
            content: Content::Json(&[of::<FederationDetail>]),
            tagged: true,
        }],
        refuses: &[Kind::CONFLICT],
        handler: answered_by!(federations::scale),
        ..PLAIN
    },
    Route {
        path: "/federations/{federation}/nodes",
        id: "list_nodes",
        about: "Nodes of a federation, by name",
        query: list::PARAMETERS,
        gives: gives![200 "A page." Content::Json(&[page_of::<Node>])],
        handler: answered_by!(federations::nodes),
        ..PLAIN
    },
    Route {
        method: Method::PUT,
        path: "/federations/{federation}/nodes/{node}",
        role: Role::Admin,
        id: "change_node",
        about: "Keep a node from new work, or let it take work again; of a pool, as a change of the document",
        takes: Takes::Json { shape: of::<NodeChange>, most_bytes: SMALL_BODY_BYTES },
        gives: &[Given {
            status: 200,
            about: "The federation.",
            content: Content::Json(&[of::<FederationDetail>]),
            tagged: true,
        }],
        refuses: &[Kind::CONFLICT],
        handler: answered_by!(federations::change_node),
        ..PLAIN
    },
    Route {
        method: Method::DELETE,
        path: "/federations/{federation}/nodes/{node}",
        role: Role::Admin,
        id: "revoke_node",
        about: "Take a node that joined from elsewhere away; its next call is refused",
        gives: gives![204 "It is revoked." NONE],
        refuses: &[Kind::CONFLICT, Kind::NOT_NOW, Kind::REFUSED],
        handler: answered_by!(federations::revoke_node),
        ..PLAIN
    },
    Route {
        path: "/federations/{federation}/connection",
        id: "get_connection",
        about: "How users of a federation reach its SuperLink",
        gives: gives![200 "Addresses and trust." Content::Json(&[of::<Connection>])],
        refuses: &[Kind::NOT_NOW],
        handler: answered_by!(federations::connection),
        ..PLAIN
    },
    Route {
        path: "/federations/{federation}/runs",
        id: "list_runs",
        about: "Runs of a federation, the newest first; also of one that is gone and was not purged",
        query: list::PARAMETERS,
        gives: gives![200 "A page." Content::Json(&[page_of::<Run>])],
        refuses: &[Kind::NOT_NOW, Kind::REFUSED],
        handler: answered_by!(runs::list),
        ..PLAIN
    },
    Route {
        method: Method::POST,
        path: "/federations/{federation}/runs",
        role: Role::Runner,
        id: "start_run",
        about: "Start a run",
        headers: &[IDEMPOTENCY_KEY],
        takes: Takes::Json { shape: of::<NewRun>, most_bytes: NEW_RUN_BYTES },
        gives: gives![201 "It is submitted." Content::Json(&[of::<Run>])],
        refuses: &[Kind::NOT_NOW],
        handler: answered_by!(runs::start),
        ..PLAIN
    },
    Route {
        path: "/federations/{federation}/runs/{run}",
        id: "get_run",
        about: "A run",
        gives: gives![200 "The run." Content::Json(&[of::<Run>])],
        refuses: &[Kind::NOT_NOW, Kind::REFUSED],
        handler: answered_by!(runs::get),
        ..PLAIN
    },
    Route {
        method: Method::POST,
        path: "/federations/{federation}/runs/{run}/stop",
        role: Role::Runner,
        id: "stop_run",
        about: "Stop a run; of one that is over, how it ended",
        gives: gives![200 "The run." Content::Json(&[of::<Run>])],
        refuses: &[Kind::NOT_NOW, Kind::REFUSED],
        handler: answered_by!(runs::stop),
        ..PLAIN
    },
    Route {
        path: "/federations/{federation}/runs/{run}/rounds",
        id: "list_rounds",
        about: "How the rounds of a run went",
        query: &[AFTER_ROUND],
        gives: gives![200 "Reports, in the order of rounds." Content::Json(&[of::<TrainingRounds>])],
        refuses: &[Kind::NOT_NOW, Kind::REFUSED],
        handler: answered_by!(runs::rounds),
        ..PLAIN
    },
    Route {
        path: "/federations/{federation}/runs/{run}/log",
        id: "read_run_log",
        about: "What a run says",
        query: &[AFTER_MOMENT, WAIT],
        gives: gives![200 "Part of the log." Content::Json(&[of::<LogPart>])],
        refuses: &[Kind::NOT_NOW, Kind::REFUSED, Kind::BUSY],
        handler: answered_by!(logs::of_run),
        ..PLAIN
    },
    Route {
        path: "/federations/{federation}/runs/{run}/nodes/{node}/log",
        id: "read_app_log",
        about: "What ClientApps wrote on a node in a run, which may have joined from elsewhere; a node is named, or given by its id",
        query: &[AFTER_PLACE, WAIT],
        gives: gives![200 "Part of the log." Content::Json(&[of::<LogPart>])],
        refuses: &[Kind::NOT_NOW, Kind::INVALID, Kind::REFUSED, Kind::BUSY],
        handler: answered_by!(logs::of_apps),
        ..PLAIN
    },
    Route {
        path: "/federations/{federation}/models",
        id: "list_models",
        about: "Models of the native runs of a federation, the newest first; where its coordinator is on the server's machine",
        query: list::PARAMETERS,
        gives: gives![200 "A page." Content::Json(&[page_of::<ModelFile>])],
        handler: answered_by!(models::list),
        ..PLAIN
    },
    Route {
        path: "/federations/{federation}/models/{run}/{checkpoint}/{file}",
        role: Role::Runner,
        id: "download_model",
        about: "A model, by its path in the list, in the format safetensors",
        gives: gives![200 "The file." Content::File],
        handler: answered_by!(models::download),
        ..PLAIN
    },
    Route {
        path: "/federations/{federation}/parts/{part}/log",
        id: "read_part_log",
        about: "What the program of the coordinator or of a node says; without `after`, its last lines",
        query: &[AFTER_PLACE, WAIT],
        gives: gives![200 "Part of the log." Content::Json(&[of::<LogPart>])],
        refuses: &[Kind::NOT_NOW, Kind::INVALID, Kind::BUSY],
        handler: answered_by!(logs::of_part),
        ..PLAIN
    },
    Route {
        path: "/events",
        id: "watch_events",
        about: "What changes, as it happens; the first event is `resync`",
        query: &[ONE_FEDERATION],
        gives: gives![200 "Events, until one side goes." Content::Events(of::<Event>)],
        refuses: &[Kind::BUSY],
        handler: answered_by!(events::watch),
        ..PLAIN
    },
    Route {
        path: "/apps",
        id: "list_apps",
        about: "What can be run without bringing an app",
        gives: gives![200 "Apps and settings." Content::Json(&[of::<Apps>])],
        handler: answered_by!(about::apps),
        ..PLAIN
    },
    Route {
        path: "/tokens",
        role: Role::Admin,
        id: "list_tokens",
        about: "Tokens, without their secrets",
        gives: gives![200 "All that count." Content::Json(&[list_of::<Token>])],
        handler: answered_by!(tokens::list),
        ..PLAIN
    },
    Route {
        method: Method::POST,
        path: "/tokens",
        role: Role::Admin,
        id: "issue_token",
        about: "Issue a token; it is told once",
        takes: Takes::Json { shape: of::<NewToken>, most_bytes: SMALL_BODY_BYTES },
        gives: gives![201 "The token." Content::Json(&[of::<IssuedToken>])],
        handler: answered_by!(tokens::issue),
        ..PLAIN
    },
    Route {
        method: Method::DELETE,
        path: "/tokens/{id}",
        role: Role::Admin,
        id: "revoke_token",
        about: "End a token at once",
        gives: gives![204 "It counts no more." NONE],
        handler: answered_by!(tokens::revoke),
        ..PLAIN
    },
    Route {
        path: "/audit",
        role: Role::Admin,
        id: "list_audit",
        about: "The audit log: logins, refusals, tokens. The newest entries, or those after a number; oldest first",
        query: &[AFTER_ENTRY, list::LIMIT],
        gives: gives![200 "Entries." Content::Json(&[list_of::<AuditEntry>])],
        handler: answered_by!(audit::list),
        ..PLAIN
    },
    Route {
        method: Method::POST,
        path: "/federations/{federation}/logins",
        id: "approve_login",
        about: "Approve a `flwr login` that waits, for the caller's identity; single sign-on only",
        takes: Takes::Json { shape: of::<LoginApproval>, most_bytes: SMALL_BODY_BYTES },
        gives: gives![204 "It continues." NONE],
        refuses: &[Kind::FORBIDDEN, Kind::NOT_NOW, Kind::REFUSED],
        handler: answered_by!(logins::approve),
        ..PLAIN
    },
    Route {
        path: "/openapi.json",
        id: "openapi",
        about: "This document",
        gives: gives![200 "OpenAPI 3.1." Content::Object],
        handler: answered_by!(about::openapi),
        ..PLAIN
    },
];
