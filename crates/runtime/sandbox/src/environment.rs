//! Selects the variables of the starting process that an app gets. Variables may hold secrets, so apps get listed ones
//! only.

use std::ffi::{OsStr, OsString};

/// Variables that programs, Python, and the network libraries of apps read.
const NAMES: &[&str] = &[
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TZDIR",
    "TERM",
    "COLUMNS",
    "NO_COLOR",
    "FORCE_COLOR",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "FLWR_LOG_LEVEL",
    "FLWR_TELEMETRY_ENABLED",
    "FLWR_DISABLE_UPDATE_CHECK",
    "GPU_DEVICE_ORDINAL",
    "GRPC_VERBOSITY",
    "GRPC_TRACE",
    "GRPC_ENABLE_FORK_SUPPORT",
    "GRPC_POLL_STRATEGY",
];

/// Families of variables: languages, Python, numeric libraries, GPUs.
const PREFIXES: &[&str] = &[
    "LC_",
    "PYTHON",
    "OMP_",
    "KMP_",
    "GOMP_",
    "MKL_",
    "OPENBLAS_",
    "BLIS_",
    "NUMEXPR_",
    "NUMBA_",
    "VECLIB_",
    "MALLOC_",
    "CUDA_",
    "CUDNN_",
    "CUBLAS_",
    "NVIDIA_",
    "NCCL_",
    "GLOO_",
    "ROCR_",
    "ROCM_",
    "HIP_",
    "HSA_",
    "MIOPEN_",
    "AMD_",
    "ONEAPI_",
    "SYCL_",
    "ZE_",
    "XLA_",
    "JAX_",
    "TF_",
    "TORCH_",
    "PYTORCH_",
    "TRITON_",
];

/// A variable with one of these in its name is passed on only if the operator names it.
const SECRETS: &[&str] =
    &["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "KEY", "PRIVATE", "AUTH"];

/// Proxy addresses, in both spellings. They may contain a password.
const PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

/// The subset of `variables` that an app gets; the operator adds the names in `named`.
pub fn for_apps(variables: impl Iterator<Item = (OsString, OsString)>, named: &[String]) -> Vec<(OsString, OsString)> {
    variables.filter(|(name, value)| is_for_apps(name, value, named)).collect()
}

/// Whether the value of a variable with this name should be shown to nobody.
pub fn is_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRETS.iter().any(|word| upper.contains(word))
}

fn is_for_apps(name: &OsStr, value: &OsStr, named: &[String]) -> bool {
    let Some(name) = name.to_str() else { return false };
    if named.iter().any(|given| given == name) || NAMES.contains(&name) {
        return true;
    }
    let upper = name.to_ascii_uppercase();
    if PROXIES.contains(&upper.as_str()) {
        return !value.as_encoded_bytes().contains(&b'@');
    }
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !is_secret(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_variables_are_passed_on_and_secrets_are_not() {
        let cases = [
            ("PATH", "/bin", true),
            ("LC_ALL", "C", true),
            ("PYTHONPATH", "/opt/lib", true),
            ("CUDA_VISIBLE_DEVICES", "0", true),
            ("https_proxy", "http://proxy:3128", true),
            ("HTTPS_PROXY", "http://me:word@proxy:3128", false),
            ("AWS_SECRET_ACCESS_KEY", "x", false),
            ("TRELLIS_TOKEN", "x", false),
            ("TORCH_HUB_TOKEN", "x", false),
            ("TORCH_HUB_KEY", "x", false),
            ("HF_TOKEN", "x", false),
            ("ONE_AUTH", "x", false),
            ("KUBECONFIG", "x", false),
            ("MINE", "x", true),
        ];
        let named = ["MINE".to_owned()];
        for (name, value, passed) in cases {
            let given = [(OsString::from(name), OsString::from(value))];
            assert_eq!(!for_apps(given.into_iter(), &named).is_empty(), passed, "{name}");
        }
    }
}
