//! `trellis schema`: the JSON Schema of the Federation document, for editors and other programs.

use std::process::ExitCode;

use clap::Args;

use trellis_terminal::print_json;

const AFTER_HELP: &str = "\
Examples:
  trellis schema > federation.schema.json
  # in a document, for editors with the YAML language server, as its first line:
  # yaml-language-server: $schema=federation.schema.json
";

/// Print the JSON Schema of the Federation document
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct SchemaArgs {}

pub fn run(_: &SchemaArgs) -> ExitCode {
    print_json(&trellis_spec::schema());
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    /// Duplicated here because a document must not need the strategies themselves.
    #[test]
    fn documents_and_trainings_know_the_same_strategies() {
        assert_eq!(trellis_spec::STRATEGIES, trellis_strategy::Strategy::NAMES);
    }
}
