//! Official programs in containers. The engine's client runs as long as its container. Paths are the same inside and outside.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use trellis_flower::Image;
use trellis_flower::launch::SECRET_FILES;

use super::{Program, Recipe, flower_version};
use crate::settings::{Common, FlowerBy};

pub fn contain(mut recipe: Recipe, by: FlowerBy, common: &Common) -> Recipe {
    let engine = if by == FlowerBy::Podman { "podman" } else { "docker" };
    let mut read: BTreeSet<PathBuf> =
        recipe.files.keys().filter_map(|file| file.parent()).map(Path::to_owned).collect();
    for program in &recipe.programs {
        let reads = |pair: &&[String]| SECRET_FILES.contains(&pair[0].as_str());
        let values = program.args.windows(2).filter(reads).map(|pair| &pair[1]);
        // Mounts directories, because a mounted file would not follow an atomic replacement.
        read.extend(values.filter_map(|file| Path::new(file).parent()).map(Path::to_owned));
    }
    let written: BTreeSet<PathBuf> = recipe.directories.iter().cloned().collect();
    let read = read.difference(&written).cloned().collect();
    let version = flower_version(common).to_owned();
    for program in &mut recipe.programs {
        *program = run(engine, program, &version, &read, &written);
    }
    recipe
}

fn run(
    engine: &str,
    program: &Program,
    version: &str,
    read: &BTreeSet<PathBuf>,
    written: &BTreeSet<PathBuf>,
) -> Program {
    let container = format!("trellis-{}", program.name);
    let entry = program.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let image = Image::published(entry.trim_start_matches("flower-"), version);
    let mut command = Program::new(&program.name, &program.description, format!("/usr/bin/{engine}"));
    for word in ["run", "--rm", "--network", "host", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"] {
        command = command.arg(word);
    }
    command = command.flag("--name", &container).flag("--entrypoint", &entry);
    for path in written {
        command = command.flag("--volume", format!("{0}:{0}", path.display()));
    }
    for path in read {
        command = command.flag("--volume", format!("{0}:{0}:ro", path.display()));
    }
    // The image has its own paths for programs.
    for (name, value) in program.env.iter().filter(|(name, _)| *name != "PATH") {
        command = command.flag("--env", format!("{name}={value}"));
        if name == "CUDA_VISIBLE_DEVICES" && !value.is_empty() {
            command = command.flag("--gpus", "all");
        }
    }
    command.args.push(image);
    command.args.extend(program.args.iter().cloned());
    command.before = vec![[&format!("/usr/bin/{engine}"), "rm", "--force", &container].map(str::to_owned).to_vec()];
    command.log = program.log.clone();
    command.as_root = true;
    command
}
