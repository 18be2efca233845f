//! Recipes for containers: each program of a recipe runs in a container of podman or docker. The client of the engine runs as long as
//! its container, so the driver watches the client. Containers that a killed client left are removed before the next start and with
//! the part. All paths are the same inside and outside.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use trellis_flower::Image;
use trellis_plan::{CoordinatorSpec, NodeSpec};
use trellis_spec::{Containers, Framework, Gpu, GpuVendor, Persistence, Resources, Runtime};

use super::{PartContext, Program, Programs, Recipe, superlink, supernode};

/// The name of our own program in images.
const OWN: &str = "trellis";
/// Pulls the image if it is absent, or reports what to do.
const PULL: &str = r#"command -v "$0" >/dev/null || {
  echo "$0 is not installed: install it, or remove \`containers\` from the site to start processes instead" >&2
  exit 1
}
for image in "$@"; do
  "$0" image inspect "$image" >/dev/null 2>&1 || "$0" pull "$image" || {
    echo "the image $image is not on this machine and cannot be pulled: build or load it ($0 load), correct \`image\`," \
      "or let this machine reach the registry and log in ($0 login)" >&2
    exit 1
  }
done"#;
/// Removes containers, running or not. Missing containers are no error.
const REMOVE: &str = r#"for name in "$@"; do
  "$0" rm --force "$name" >/dev/null 2>&1
  if "$0" container inspect "$name" >/dev/null 2>&1; then
    echo "cannot remove the container $name: run $0 rm --force $name to see why" >&2
    exit 1
  fi
done"#;
/// Limit of the name of a part within the name of its container.
const NAME_CHARS: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Podman,
    Docker,
}

impl Engine {
    /// `None`: the part runs as processes.
    pub fn of(containers: Option<Containers>) -> Option<Engine> {
        match containers {
            None | Some(Containers::No) => None,
            Some(Containers::Podman) => Some(Engine::Podman),
            Some(Containers::Docker) => Some(Engine::Docker),
        }
    }

    fn program(self) -> &'static str {
        match self {
            Engine::Podman => "podman",
            Engine::Docker => "docker",
        }
    }
}

pub fn coordinator(engine: Engine, spec: &CoordinatorSpec, context: &PartContext) -> Result<Recipe, Vec<String>> {
    let recipe = superlink::recipe(spec, &inside(context), Programs::Image)?;
    let images = Images::of(&spec.runtime, spec.image.as_deref(), None, "superlink")?;
    let mut volumes = Volumes::of(context);
    if let Persistence::Disk { path: Some(path), .. } = &spec.persistence {
        volumes.written.insert(path.clone());
    }
    if spec.runtime == Runtime::Trellis {
        volumes.written.insert(context.models.clone());
    }
    Contained { engine, context, images, volumes, resources: &spec.resources, gpu: None }.recipe(recipe)
}

pub fn node(engine: Engine, spec: &NodeSpec, context: &PartContext) -> Result<Recipe, Vec<String>> {
    // The engine limits the whole container.
    let unlimited = NodeSpec { resources: Resources::default(), ..spec.clone() };
    let recipe = supernode::recipe(&unlimited, &inside(context), Programs::Image);
    let images = Images::of(&spec.runtime, spec.image.as_deref(), spec.framework, "supernode")?;
    let (volumes, gpu) = (Volumes::of(context), spec.gpu.as_ref());
    Contained { engine, context, images, volumes, resources: &spec.resources, gpu }.recipe(recipe)
}

/// The paths inside a container: our program has its usual name there, and GPUs are numbered from 0.
fn inside(context: &PartContext) -> PartContext {
    let gpus = (0..).take(context.gpus.len()).collect();
    PartContext { program: PathBuf::from(OWN), gpus, ..context.clone() }
}

/// The images of the programs.
struct Images {
    part: String,
    /// For the programs besides the first.
    beside: String,
}

impl Images {
    fn of(
        runtime: &Runtime,
        named: Option<&str>,
        framework: Option<Framework>,
        role: &str,
    ) -> Result<Images, Vec<String>> {
        let alike = |image: String| Images { beside: image.clone(), part: image };
        if let Some(image) = named {
            return Ok(alike(image.to_owned()));
        }
        let version = env!("CARGO_PKG_VERSION");
        match (runtime, framework) {
            (Runtime::Trellis, None) => Ok(alike(format!("{OWN}:{version}"))),
            (Runtime::Trellis, Some(framework)) => Ok(alike(format!("{OWN}-{}:{version}", name_of(framework)))),
            (Runtime::Flower(version), None) => {
                Ok(Images { part: Image::published(role, version), beside: Image::published("superexec", version) })
            }
            (Runtime::Flower(_), Some(framework)) => Err(vec![format!(
                "the official images do not contain {}: set `image` to one that does",
                name_of(framework)
            )]),
        }
    }
}

fn name_of(framework: Framework) -> &'static str {
    match framework {
        Framework::PyTorch => "pytorch",
        Framework::TensorFlow => "tensorflow",
        Framework::Sklearn => "sklearn",
    }
}

/// Directories of this machine that are mounted.
struct Volumes {
    written: BTreeSet<PathBuf>,
    read: BTreeSet<PathBuf>,
}

impl Volumes {
    fn of(context: &PartContext) -> Volumes {
        let written = BTreeSet::from([context.directory.clone(), context.state.clone()]);
        let served = context.tls.iter().filter_map(|tls| tls.served.as_ref());
        let files = served.flat_map(|served| [&served.certificate, &served.key]);
        let trusted = context.tls.iter().filter_map(|tls| tls.trust.as_ref());
        // Directories instead of files: a mounted file would not change when it is replaced atomically.
        let read = files.chain(trusted).filter_map(|file| file.parent()).map(Path::to_owned).collect();
        Volumes { written, read }
    }

    fn flags(&self) -> Vec<OsString> {
        let flag = |path: &PathBuf, how: &str| {
            let mut mount = path.clone().into_os_string();
            mount.push(":");
            mount.push(path);
            mount.push(how);
            [OsString::from("--volume"), mount]
        };
        let read = self.read.difference(&self.written).map(|path| flag(path, ":ro"));
        self.written.iter().map(|path| flag(path, "")).chain(read).flatten().collect()
    }
}

/// The environment of the container, as an env file of both engines.
fn environment(program: &Program, home: &Path) -> Result<String, Vec<String>> {
    let (mut text, mut problems) = (format!("HOME={}\n", home.display()), Vec::new());
    for (name, value) in &program.env {
        match value.to_str().filter(|value| !value.contains('\n')) {
            Some(value) => text.push_str(&format!("{name}={value}\n")),
            None => {
                problems.push(format!("the variable {name} has more than one line, which containers do not support"))
            }
        }
    }
    if problems.is_empty() { Ok(text) } else { Err(problems) }
}

struct Contained<'a> {
    engine: Engine,
    context: &'a PartContext,
    images: Images,
    volumes: Volumes,
    resources: &'a Resources,
    gpu: Option<&'a Gpu>,
}

impl Contained<'_> {
    fn recipe(&self, mut recipe: Recipe) -> Result<Recipe, Vec<String>> {
        let images: BTreeSet<&String> = match recipe.programs.len() {
            ..2 => [&self.images.part].into(),
            2.. => [&self.images.part, &self.images.beside].into(),
        };
        let names: Vec<String> = (0..recipe.programs.len()).map(|role| self.name(role)).collect();
        let pull = images.into_iter().fold(self.script(PULL), Program::arg);
        let remove = names.iter().fold(self.script(REMOVE), Program::arg);
        let (mut programs, mut problems) = (Vec::new(), Vec::new());
        for (role, (program, name)) in recipe.programs.iter().zip(&names).enumerate() {
            let variables = self.context.directory.join(format!("container-{role}.env"));
            match environment(program, &self.context.state) {
                Ok(text) => recipe.files.insert(variables.clone(), text).map_or((), drop),
                Err(why) => problems.extend(why),
            }
            programs.push(self.run(role, program, name, &variables));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let before = std::iter::once(pull).chain(recipe.before).collect();
        let after = recipe.after.into_iter().chain([remove]).collect();
        Ok(Recipe { before, programs, after, ..recipe })
    }

    fn script(&self, script: &str) -> Program {
        Program::new("/bin/sh").flag("-c", script).arg(self.engine.program())
    }

    /// Unique for each part of each home, and readable.
    fn name(&self, role: usize) -> String {
        let hash = trellis_digest::fnv1a(self.context.directory.as_os_str().as_encoded_bytes());
        let part: String = self.context.id.part.name().chars().take(NAME_CHARS).collect();
        match role {
            0 => format!("{OWN}-{hash:016x}-{part}"),
            _ => format!("{OWN}-{hash:016x}-{part}-{role}"),
        }
    }

    fn run(&self, role: usize, program: &Program, name: &str, variables: &Path) -> Program {
        let mut run = Program::new(self.engine.program())
            .arg("run")
            .flag("--name", name)
            .flag("--label", format!("dev.trellis.part={}", self.context.id))
            .flag("--restart", "no")
            .flag("--network", "host")
            // The output is in the log of the part.
            .flag("--log-driver", "none")
            // All ports are unprivileged and the files belong to the user of the container, so programs need no
            // capabilities.
            .flag("--cap-drop", "all")
            .flag("--security-opt", "no-new-privileges")
            // With SELinux labels, the mounted files would be inaccessible.
            .flag("--security-opt", "label=disable");
        run.args.extend(self.owner());
        run.args.extend(self.limits());
        run.args.extend(self.gpus());
        run.args.extend(self.volumes.flags());
        // In a file, because other users can see arguments, and because the client of the engine must not use the values.
        run = run.flag("--env-file", variables);
        let image = if role == 0 { &self.images.part } else { &self.images.beside };
        run = run.flag("--entrypoint", &program.path).arg(image);
        run.args.extend(program.args.iter().cloned());
        run
    }

    /// Runs the container as the user of the driver, who then owns the files.
    fn owner(&self) -> Vec<OsString> {
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        let mut flags = vec!["--user".to_owned(), format!("{}:{}", user.as_raw(), group.as_raw())];
        if self.engine == Engine::Podman && !user.is_root() {
            flags.extend(["--userns".to_owned(), "keep-id".to_owned()]);
        }
        flags.into_iter().map(OsString::from).collect()
    }

    fn limits(&self) -> Vec<OsString> {
        let mut flags = Vec::new();
        if let Some(millis) = self.resources.cpu_millis {
            flags.extend(["--cpus".to_owned(), format!("{}.{:03}", millis / 1000, millis % 1000)]);
        }
        if let Some(bytes) = self.resources.memory_bytes {
            flags.extend(["--memory".to_owned(), bytes.to_string()]);
        }
        flags.into_iter().map(OsString::from).collect()
    }

    fn gpus(&self) -> Vec<OsString> {
        let Some(gpu) = self.gpu else { return Vec::new() };
        let devices = |names: Vec<String>| names.into_iter().flat_map(|name| ["--device".to_owned(), name]).collect();
        let own = || self.context.gpus.iter().map(u32::to_string);
        let flags: Vec<String> = match (gpu.vendor, self.engine) {
            (GpuVendor::Amd, _) => devices(vec!["/dev/kfd".to_owned(), "/dev/dri".to_owned()]),
            // No GPU is assigned, and the node may use the CPU.
            (GpuVendor::Nvidia, _) if self.context.gpus.is_empty() && gpu.fallback_to_cpu => Vec::new(),
            (GpuVendor::Nvidia, Engine::Podman) if self.context.gpus.is_empty() => {
                devices(vec!["nvidia.com/gpu=all".to_owned()])
            }
            (GpuVendor::Nvidia, Engine::Podman) => devices(own().map(|gpu| format!("nvidia.com/gpu={gpu}")).collect()),
            (GpuVendor::Nvidia, Engine::Docker) if self.context.gpus.is_empty() => {
                vec!["--gpus".to_owned(), gpu.count.to_string()]
            }
            // The quotes are part of the value: without them, a comma would end the list.
            (GpuVendor::Nvidia, Engine::Docker) => {
                vec!["--gpus".to_owned(), format!("\"device={}\"", own().collect::<Vec<_>>().join(","))]
            }
        };
        flags.into_iter().map(OsString::from).collect()
    }
}

#[cfg(test)]
mod tests;
