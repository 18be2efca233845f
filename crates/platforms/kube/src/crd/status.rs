//! Schema of `.status`. The content is computed in `crate::status`.

use super::schema::Schema;

pub fn federation() -> Schema {
    let count = |description: &str| Schema::int32(description);
    Schema::object("Observed state of the federation.")
        .field("observedGeneration", Schema::int64("The spec that all this is about."))
        .field("conditions", conditions())
        .field("supernodes", Schema::text("Ready and wanted SuperNodes, as 2/3."))
        .field("readySupernodes", count("SuperNodes that are ready."))
        .field("desiredSupernodes", count("SuperNodes that are wanted."))
        .field("endpoints", endpoints())
        .field("pools", pools())
        .field("release", Schema::text("The Flower release of the SuperLink, or Trellis, as far as the image tells."))
        .field("selector", Schema::text("Labels of the pods of the scaled pool, for autoscalers."))
        .field(
            "scaling",
            Schema::object("The pool of spec.scaling.")
                .field("pool", Schema::text("Name of the pool."))
                .field("replicas", count("Current number of SuperNodes."))
                .field("desired", count("Desired number of SuperNodes."))
                .field("asked", count("Size in the spec at the time of the decision."))
                .field("reason", Schema::text("Reason for this number."))
                .field("lastChange", Schema::time("When rules last changed the number.")),
        )
        .field(
            "certificate",
            Schema::object("Of the SuperLink.")
                .field("secretName", Schema::text("Where it is."))
                .field("notAfter", Schema::time("When it ends."))
                .field("renewAfter", Schema::time("When it is renewed."))
                .field("authorityNotAfter", Schema::time("When its authority ends.")),
        )
        .field(
            "sites",
            Schema::list_by(
                "Nodes outside of the cluster.",
                "name",
                Schema::object("A site.")
                    .field("name", Schema::text("Of the site."))
                    .field("secretName", Schema::text("What a machine there needs to join."))
                    .field("address", Schema::text("Of the SuperLink, as seen from there."))
                    .field("message", Schema::text("Details for users."))
                    .required(["name"]),
            ),
        )
}

fn endpoints() -> Schema {
    Schema::object("Where the SuperLink is reached in the cluster.")
        .field("superlinkService", Schema::text("For flwr run."))
        .field("fleet", Schema::text("For SuperNodes."))
        .field("control", Schema::text("The Control API."))
        .field("http", Schema::text("The HTTP API."))
}

fn pools() -> Schema {
    let pool = Schema::object("A pool.")
        .field("name", Schema::text("Of the pool."))
        .field("kind", Schema::text("Of its workload."))
        .field("desired", Schema::int32("SuperNodes that are wanted."))
        .field("ready", Schema::int32("SuperNodes that are ready."))
        .field("release", Schema::text("The Flower release of its image."))
        .field("conditions", conditions());
    Schema::list("The pools, in the order of the spec.", pool)
}

pub fn conditions() -> Schema {
    let condition = Schema::object("One thing that holds, or does not.")
        .field("type", Schema::text("What.").length(1, 316))
        .field("status", Schema::text("Whether.").one_of(["True", "False", "Unknown"]))
        .field("reason", Schema::text("Why, in one word.").length(1, 1024))
        .field("message", Schema::text("Why, and what to do.").with("maxLength", 32_768))
        .field("observedGeneration", Schema::int64("The spec that this is about.").at_least(0))
        .field("lastTransitionTime", Schema::time("Since when."))
        .required(["type", "status", "reason", "message", "lastTransitionTime"]);
    Schema::list_by("What holds, and what does not.", "type", condition)
}
