//! Schema of `FederationRun`. The behaviour is in `crate::run`.

use serde_json::json;

use super::schema::{Rule, Schema};
use super::status::conditions;

const MAX_NAME: u32 = 253;
const MAX_SCHEDULE: u32 = 256;
const MAX_ROUNDS: i64 = 1_000_000;
const MAX_RETRIES: i64 = 100;
const DAY_SECONDS: i64 = 86_400;
const YEAR_SECONDS: i64 = 366 * DAY_SECONDS;

pub fn spec() -> Schema {
    let federation = Schema::text("A Federation of this namespace. It cannot be changed.")
        .length(1, MAX_NAME)
        .rules([Rule::new("self == oldSelf", "spec.federation cannot be changed: make another FederationRun")]);
    // Values of any type, which a schema cannot express.
    let anything = Schema::made(json!({ "x-kubernetes-preserve-unknown-fields": true }));
    Schema::object("The desired run, with its federation and schedule.")
        .field("federation", federation)
        .field("app", app())
        .field("rounds", Schema::int32("How many. Absent: as many as the app says.").between(1, MAX_ROUNDS))
        .field(
            "config",
            Schema::map("In place of values of the app's configuration: text, numbers, true, false.", anything),
        )
        .field(
            "schedule",
            Schema::text("When, again and again: minute, hour, day of the month, month, day of the week, in UTC.")
                .length(9, MAX_SCHEDULE)
                .with("pattern", r"^\S+( +\S+){4}$"),
        )
        .field(
            "concurrency",
            Schema::text("What becomes of a time while an earlier run is under way. Forbid: it is passed over.")
                .one_of(["Forbid", "Allow"])
                .with("default", "Forbid"),
        )
        .field("retries", Schema::int32("New tries of a run that failed.").between(0, MAX_RETRIES).with("default", 0))
        .field(
            "backoffSeconds",
            Schema::int32("Before the first new try; doubled for each one after it. 10.").between(1, DAY_SECONDS),
        )
        .field("timeoutSeconds", Schema::int32("A try that takes longer has failed.").between(1, YEAR_SECONDS))
        .field(
            "ttlSecondsAfterFinished",
            Schema::int32("So long after its run has ended, this resource is deleted.").between(0, YEAR_SECONDS),
        )
        .field("suspend", Schema::truth("Nothing new is submitted.").with("default", false))
        .required(["federation", "app"])
        .rules([Rule::new(
            "!has(self.schedule) || !has(self.ttlSecondsAfterFinished)",
            "spec.ttlSecondsAfterFinished cannot be with schedule, which never ends",
        )])
}

fn app() -> Schema {
    let bundle = Schema::object("A Flower app as flwr build packs it, in a ConfigMap of this namespace.")
        .field("name", Schema::text("Of the ConfigMap.").length(1, MAX_NAME))
        .field("key", Schema::text("In binaryData. Absent: the only one.").length(1, MAX_NAME))
        .required(["name"]);
    Schema::object("App of the run: one of these.")
        .field("native", Schema::text("An app of the program itself, like mlp.").length(1, MAX_NAME))
        .field("catalogue", Schema::text("A Flower app that comes with the program.").length(1, MAX_NAME))
        .field("configMap", bundle)
        .rules([Rule::new(
            "(has(self.native) ? 1 : 0) + (has(self.catalogue) ? 1 : 0) + (has(self.configMap) ? 1 : 0) == 1",
            "exactly one of native, catalogue and configMap must be set",
        )])
}

pub fn status() -> Schema {
    let count = |description: &str| Schema::int64(description);
    let active = Schema::object("A run that is not over.")
        .field("number", count("1 for the first."))
        .field("attempt", count("1 for the first."))
        .field("scheduled", Schema::time("The time that the schedule named."))
        .field("submitted", Schema::time("Since when the try may be at the SuperLink."))
        .field("runId", Schema::text("At the SuperLink."))
        .field("notBefore", Schema::time("No new try before this."))
        .field("timedOut", Schema::truth("It was stopped after its time limit."))
        .field("round", count("The newest."))
        .field("rounds", count("All."))
        .field("result", metrics())
        .field("message", Schema::text("Details for users."));
    let past = Schema::object("A run that is over.")
        .field("number", count("1 for the first."))
        .field("state", state())
        .field("attempt", count("How many tries it took."))
        .field("runId", Schema::text("At the SuperLink."))
        .field("scheduled", Schema::time("The time that the schedule named."))
        .field("started", Schema::time("When it began."))
        .field("finished", Schema::time("When it ended."))
        .field("round", count("The last."))
        .field("rounds", count("All."))
        .field("result", metrics())
        .field("message", Schema::text("Details for users."));
    Schema::object("What came of it: of the newest run, and of those before.")
        .field("observedGeneration", count("The spec that all this is about."))
        .field("conditions", conditions())
        .field("state", state())
        .field("runId", Schema::text("At the SuperLink."))
        .field("attempt", count("1 for the first try."))
        .field("round", count("The newest."))
        .field("rounds", count("All."))
        .field("progress", Schema::text("Round and rounds, as 2/10."))
        .field("started", Schema::time("When it began."))
        .field("finished", Schema::time("When it ended."))
        .field("next", Schema::time("When the schedule is due next."))
        .field("result", metrics())
        .field("message", Schema::text("Details for users."))
        .field("active", Schema::list("Runs that are under way or about to be.", active))
        .field("history", Schema::list("Runs of the schedule that are over, the newest first.", past))
        .field("count", count("How many runs there were."))
        .field("scheduled", Schema::time("The last time of the schedule that was heeded or passed over."))
}

fn state() -> Schema {
    Schema::text("Where it stands.").one_of(["Pending", "Waiting", "Running", "Succeeded", "Failed", "Stopped"])
}

fn metrics() -> Schema {
    let number = Schema::made(json!({ "type": "number", "format": "double" }));
    Schema::map("Metrics of the last round, by phase and name.", number)
}
