//! Recipes in containers: the programs of another recipe, each run by podman or docker from an image. The client of the engine
//! runs as long as its container, so that whoever watches the one watches the other; what a killed client leaves is removed
//! before the next start and at the end. All paths are the same inside and outside.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use trellis_flower::Image;
use trellis_plan::{CoordinatorSpec, NodeSpec};
use trellis_spec::{Containers, Framework, Gpu, GpuVendor, Persistence, Resources, Runtime};

use super::{Place, Program, Programs, Recipe, superlink, supernode};

/// Our own program, as it is called in images.
const OWN: &str = "trellis";
/// Makes sure of the image, or says what to do.
const PULL: &str = r#"command -v "$0" >/dev/null || {
  echo "$0 is not installed: install it, or leave out \`containers\` of the site, so that processes are started" >&2
  exit 1
}
for image in "$@"; do
  "$0" image inspect "$image" >/dev/null 2>&1 || "$0" pull "$image" || {
    echo "the image $image is not here and cannot be pulled: build or load it ($0 load), correct \`image\`," \
      "or let this machine reach the registry and log in ($0 login)" >&2
    exit 1
  }
done"#;
/// Removes containers, running or not. It is no trouble if there are none.
const REMOVE: &str = r#"for name in "$@"; do
  "$0" rm --force "$name" >/dev/null 2>&1
  if "$0" container inspect "$name" >/dev/null 2>&1; then
    echo "the container $name cannot be removed: see what $0 rm --force $name says" >&2
    exit 1
  fi
done"#;
/// Of the name of a part within that of its container.
const NAME_CHARS: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Podman,
    Docker,
}

impl Engine {
    /// `None`: processes.
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

pub fn coordinator(engine: Engine, spec: &CoordinatorSpec, place: &Place) -> Result<Recipe, Vec<String>> {
    let recipe = superlink::recipe(spec, &inside(place), Programs::Image)?;
    let images = Images::of(&spec.runtime, spec.image.as_deref(), None, "superlink")?;
    let mut volumes = Volumes::of(place);
    if let Persistence::Disk { path: Some(path), .. } = &spec.persistence {
        volumes.written.insert(path.clone());
    }
    if spec.runtime == Runtime::Trellis {
        volumes.written.insert(place.models.clone());
    }
    Contained { engine, place, images, volumes, resources: &spec.resources, gpu: None }.recipe(recipe)
}

pub fn node(engine: Engine, spec: &NodeSpec, place: &Place) -> Result<Recipe, Vec<String>> {
    // The container is held to the limits, with everything in it.
    let unlimited = NodeSpec { resources: Resources::default(), ..spec.clone() };
    let recipe = supernode::recipe(&unlimited, &inside(place), Programs::Image);
    let images = Images::of(&spec.runtime, spec.image.as_deref(), spec.framework, "supernode")?;
    let (volumes, gpu) = (Volumes::of(place), spec.gpu.as_ref());
    Contained { engine, place, images, volumes, resources: &spec.resources, gpu }.recipe(recipe)
}

/// The machine as it looks from within: our program has its usual name, and GPUs are counted anew.
fn inside(place: &Place) -> Place {
    let gpus = (0..).take(place.gpus.len()).collect();
    Place { program: PathBuf::from(OWN), gpus, ..place.clone() }
}

/// Which image for which program.
struct Images {
    part: String,
    /// For the programs beside it.
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
                "the official images do not bring {}: name an image that has it (`image`)",
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

/// Directories of this machine that are seen inside.
struct Volumes {
    written: BTreeSet<PathBuf>,
    read: BTreeSet<PathBuf>,
}

impl Volumes {
    fn of(place: &Place) -> Volumes {
        let written = BTreeSet::from([place.directory.clone(), place.state.clone()]);
        let served = place.tls.iter().filter_map(|tls| tls.served.as_ref());
        let files = served.flat_map(|served| [&served.certificate, &served.key]);
        let trusted = place.tls.iter().filter_map(|tls| tls.trust.as_ref());
        // Their directories: a file that is renewed by putting another in its place would be the old one for ever.
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

/// The environment inside, in the form of both engines: a line for each, as it is.
fn environment(program: &Program, home: &Path) -> Result<String, Vec<String>> {
    let (mut text, mut problems) = (format!("HOME={}\n", home.display()), Vec::new());
    for (name, value) in &program.env {
        match value.to_str().filter(|value| !value.contains('\n')) {
            Some(value) => text.push_str(&format!("{name}={value}\n")),
            None => {
                problems.push(format!("the variable {name} has more than one line, which containers cannot be given"))
            }
        }
    }
    if problems.is_empty() { Ok(text) } else { Err(problems) }
}

struct Contained<'a> {
    engine: Engine,
    place: &'a Place,
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
            let variables = self.place.directory.join(format!("container-{role}.env"));
            match environment(program, &self.place.state) {
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

    /// Another for each part of each home, and legible.
    fn name(&self, role: usize) -> String {
        let hash = trellis_digest::fnv1a(self.place.directory.as_os_str().as_encoded_bytes());
        let part: String = self.place.id.part.name().chars().take(NAME_CHARS).collect();
        match role {
            0 => format!("{OWN}-{hash:016x}-{part}"),
            _ => format!("{OWN}-{hash:016x}-{part}-{role}"),
        }
    }

    fn run(&self, role: usize, program: &Program, name: &str, variables: &Path) -> Program {
        let mut run = Program::new(self.engine.program())
            .arg("run")
            .flag("--name", name)
            .flag("--label", format!("dev.trellis.part={}", self.place.id))
            .flag("--restart", "no")
            .flag("--network", "host")
            // Its output is in the part's log.
            .flag("--log-driver", "none")
            // The user of the container owns the files inside, and all ports are unprivileged. No program of the image
            // needs a capability.
            .flag("--cap-drop", "all")
            .flag("--security-opt", "no-new-privileges")
            // Where the system labels files, those of this machine would not be seen inside.
            .flag("--security-opt", "label=disable");
        run.args.extend(self.owner());
        run.args.extend(self.limits());
        run.args.extend(self.gpus());
        run.args.extend(self.volumes.flags());
        // In a file: values are nobody's business who lists processes, and not meant for the engine's client.
        run = run.flag("--env-file", variables);
        let image = if role == 0 { &self.images.part } else { &self.images.beside };
        run = run.flag("--entrypoint", &program.path).arg(image);
        run.args.extend(program.args.iter().cloned());
        run
    }

    /// As whoever runs the driver: files inside are theirs.
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
        let own = || self.place.gpus.iter().map(u32::to_string);
        let flags: Vec<String> = match (gpu.vendor, self.engine) {
            (GpuVendor::Amd, _) => devices(vec!["/dev/kfd".to_owned(), "/dev/dri".to_owned()]),
            // None were found that could be given: what goes on without them is not held up.
            (GpuVendor::Nvidia, _) if self.place.gpus.is_empty() && gpu.fallback_to_cpu => Vec::new(),
            (GpuVendor::Nvidia, Engine::Podman) if self.place.gpus.is_empty() => {
                devices(vec!["nvidia.com/gpu=all".to_owned()])
            }
            (GpuVendor::Nvidia, Engine::Podman) => devices(own().map(|gpu| format!("nvidia.com/gpu={gpu}")).collect()),
            (GpuVendor::Nvidia, Engine::Docker) if self.place.gpus.is_empty() => {
                vec!["--gpus".to_owned(), gpu.count.to_string()]
            }
            // Its own quotes belong to it: without, a comma ends the list.
            (GpuVendor::Nvidia, Engine::Docker) => {
                vec!["--gpus".to_owned(), format!("\"device={}\"", own().collect::<Vec<_>>().join(","))]
            }
        };
        flags.into_iter().map(OsString::from).collect()
    }
}

#[cfg(test)]
mod tests;
