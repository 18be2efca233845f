//! Checks of what apps may use of the machine.

use trellis_node::config::{Gpus, Resources, WhenMissing};

use super::{Checker, MIB};

/// Below it no Python starts.
const SMALLEST_APP_BYTES: u64 = 32 * MIB;
const FEWEST_CPUS: f64 = 0.01;
const MOST_CPUS: f64 = 65536.0;
/// CUDA's way to say that no GPU is to be seen.
const NO_DEVICE: &str = "-1";

impl Checker<'_> {
    pub(super) fn resources(&mut self) -> Resources {
        let args = &self.raw.args.resources;
        let missing = [("warn", WhenMissing::Warn), ("refuse", WhenMissing::Refuse)];
        Resources {
            gpus: self.gpus(),
            gpu_missing: self.choice("gpu-missing", args.gpu_missing.as_deref(), &missing),
            gpu_memory_fraction: self.share(args.gpu_memory_fraction.as_deref()),
            app_cpus: self.cpus(args.app_cpus.as_deref()),
            app_memory_bytes: self.size("app-memory", args.app_memory.as_deref(), SMALLEST_APP_BYTES, u64::MAX),
        }
    }

    fn gpus(&mut self) -> Gpus {
        let args = &self.raw.args.resources;
        match (args.gpus.as_deref(), args.cuda_visible_devices.as_deref()) {
            (Some(_), Some(_)) => {
                let what = "--gpus and --cuda-visible-devices say the same and are both set";
                self.refuse(&["gpus", "cuda-visible-devices"], what, "keep one of them");
                Gpus::Unset
            }
            (None, None) => Gpus::Unset,
            (None, Some(NO_DEVICE)) | (Some("none"), None) => Gpus::None,
            (Some("all"), None) => Gpus::All,
            (Some("0"), None) => {
                let what = "--gpus 0 could mean no GPU, or the first one";
                self.refuse(&["gpus"], what, "write --gpus none, or --cuda-visible-devices 0");
                Gpus::Unset
            }
            (Some(text), None) => match text.parse() {
                Ok(count) => Gpus::Count(count),
                Err(_) => self.devices("gpus", text, "use none, all, a number, or a list like 0,1"),
            },
            (None, Some(list)) => self.devices("cuda-visible-devices", list, "write it like 0,1 or GPU-8932f937-d72c"),
        }
    }

    fn devices(&mut self, name: &str, list: &str, advice: &str) -> Gpus {
        let devices: Vec<String> = list.split(',').map(|device| device.trim().to_owned()).collect();
        let numbered = |device: &str| device.bytes().all(|byte| byte.is_ascii_digit());
        let named = |device: &str| ["GPU-", "MIG-"].iter().any(|start| device.starts_with(start));
        let sound = |device: &String| !device.is_empty() && (numbered(device) || named(device));
        if !devices.iter().all(sound) {
            self.refuse(&[name], format!("--{name}: {list:?} is no list of GPUs"), advice);
        }
        Gpus::These(devices)
    }

    fn share(&mut self, given: Option<&str>) -> Option<f64> {
        let name = "gpu-memory-fraction";
        let text = given?;
        let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
        if share.is_none() {
            let what = format!("--{name}: {text:?} is not a number above 0 and up to 1");
            self.refuse(&[name], what, "write it like 0.5");
        }
        share
    }

    fn cpus(&mut self, given: Option<&str>) -> Option<f64> {
        let text = given?;
        let cpus = text.parse().ok().filter(|cpus| (FEWEST_CPUS..=MOST_CPUS).contains(cpus));
        if cpus.is_none() {
            let what = format!("--app-cpus: {text:?} is not a number of CPUs");
            self.refuse(&["app-cpus"], what, "write it like 2 or 1.5");
        }
        cpus
    }
}
