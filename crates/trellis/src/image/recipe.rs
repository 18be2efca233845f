//! `trellis image recipe`: what an image is made of, for those who make theirs by other means.

use clap::Args;
use serde_json::json;
use trellis_image::recipe::{Framework, Recipe};

use super::RoleName;
use super::build::FrameworkName;
use crate::remote::{OutputArgs, Trouble, print};

/// Say what an image of a role is made of, and build nothing
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

pub fn run(args: &RecipeArgs) -> Result<(), Trouble> {
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
        return Err(Trouble::usage(problems.join("\n  "), "ask for a recipe that does not contradict itself"));
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
        let told = json!({
            "name": recipe.to_string(), "packages": packages, "requirements": requirements, "units": units, "files": files,
            "disk_bytes": recipe.disk_bytes(), "budget_bytes": recipe.budget_bytes(),
        });
        args.output.print(&told, || {
            for (what, words) in [("packages", &packages), ("requirements", &requirements), ("files", &files)] {
                print(&format!("{what}: {}\n", words.join(" ")));
            }
            print(&format!("units: {}\n", units.join(" ")));
        });
    }
    Ok(())
}
