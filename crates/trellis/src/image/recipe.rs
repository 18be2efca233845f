//! `trellis image recipe`: the steps of an image build, for builds with other tools.

use clap::Args;
use serde_json::json;
use trellis_image::recipe::{Framework, Recipe};
use trellis_terminal::{OutputArgs, print};

use super::RoleName;
use super::build::FrameworkName;
use crate::remote::CommandError;

/// Show the packages, files and steps of a role's image, without a build
#[derive(Debug, Args)]
pub struct RecipeArgs {
    role: RoleName,
    #[arg(long, value_enum, default_value = "none")]
    framework: FrameworkName,
    #[arg(long)]
    edge: bool,
    #[arg(long, value_name = "X.Y.Z", default_value = trellis_flower::Release::NEWEST_TEXT)]
    flower_version: String,
    /// Only the packages of Debian, one in a line
    #[arg(long, conflicts_with = "requirements")]
    packages: bool,
    /// Only the packages of PyPI, one in a line
    #[arg(long)]
    requirements: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &RecipeArgs) -> Result<(), CommandError> {
    let recipe = Recipe {
        role: args.role.into(),
        framework: Framework::from(args.framework),
        edge: args.edge,
        suite: "bookworm".to_owned(),
        flower_version: args.flower_version.clone(),
        disk_bytes: None,
        context_package: false,
    };
    let problems = recipe.objections();
    if !problems.is_empty() {
        return Err(CommandError::usage(problems.join("\n  "), "correct the contradicting arguments"));
    }
    let (packages, requirements) = (recipe.packages(), recipe.requirements());
    let lines = |words: &[String]| words.iter().for_each(|word| print(&format!("{word}\n")));
    let packages: Vec<String> = packages.into_iter().map(str::to_owned).collect();
    if args.packages {
        lines(&packages);
    } else if args.requirements {
        lines(&requirements);
    } else {
        let units: Vec<_> = recipe.enabled().iter().map(|enabled| enabled.unit).collect();
        let files: Vec<_> = recipe.files().iter().map(|file| format!("/{}", file.path)).collect();
        let result = json!({
            "name": recipe.to_string(), "packages": packages, "requirements": requirements, "units": units, "files": files,
            "disk_bytes": recipe.disk_bytes(), "budget_bytes": recipe.budget_bytes(),
        });
        args.output.print(&result, || {
            for (what, words) in [("packages", &packages), ("requirements", &requirements), ("files", &files)] {
                print(&format!("{what}: {}\n", words.join(" ")));
            }
            print(&format!("units: {}\n", units.join(" ")));
        });
    }
    Ok(())
}
