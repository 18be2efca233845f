//! Checks of the GPUs for apps.

use trellis_node::config::Gpus;

use super::Checker;

/// The value with which CUDA hides all GPUs.
const NO_DEVICE: &str = "-1";

impl Checker<'_> {
    /// `--gpus` and `--cuda-visible-devices`.
    pub(in crate::supernode) fn gpus(&mut self) {
        self.checked.config.resources.gpus = match (self.text("gpus"), self.text("cuda-visible-devices")) {
            (Some(_), Some(_)) => {
                let what = "--gpus and --cuda-visible-devices have the same meaning and are both set";
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
        };
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
}
