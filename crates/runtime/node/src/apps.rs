//! Runs instructions with the kind of app that the operator has configured. Built-in apps that a run names are always
//! available.

mod built_in;
mod native;

use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use trellis_core::id::RunId;
use trellis_sandbox::{DataPath, Sandbox};
use trellis_wire::{fab, proto};

use crate::app::{Job, Outcome};
use crate::app_log::AppLog;
use crate::config::{AppMode, Config};
use crate::error::Error;
use crate::objects::Objects;
use crate::official::{self, OfficialApps};
use crate::resources::Confinement;
use crate::warm::{self, StartError, WarmApps, WorkerInfo};
use crate::watch::{AppState, AppStatus, Watch};
use built_in::BuiltInApps;
use native::NativeApps;

/// Directory below the state directory: scratch directories of sandboxed apps.
const SCRATCH: &str = "scratch";

pub struct AppRunner {
    chosen: Chosen,
    built_in: BuiltInApps,
}

enum Chosen {
    Warm(WarmApps),
    Official(OfficialApps),
    Native(NativeApps),
}

impl AppRunner {
    /// Prepares everything that apps need.
    pub async fn start(
        config: &Config,
        objects: Objects,
        confinement: Confinement,
        watch: &Watch,
        log: &AppLog,
    ) -> Result<AppRunner, Error> {
        let built_in = BuiltInApps::new(objects.clone());
        let chosen = Chosen::start(config, objects, confinement, watch, log).await?;
        Ok(AppRunner { chosen, built_in })
    }

    /// Executes an instruction. Dropping the future kills the app.
    pub async fn execute(&self, job: Job) -> Outcome {
        let built_in = job.app.as_ref().and_then(|app| fab::built_in(&app.client_app)).map(str::to_owned);
        match (built_in, &self.chosen) {
            (Some(name), _) => self.built_in.execute(&name, job).await,
            (None, Chosen::Warm(apps)) => apps.execute(job).await,
            (None, Chosen::Official(apps)) => apps.execute(job).await,
            (None, Chosen::Native(apps)) => apps.execute(job).await,
        }
    }

    /// Whether the operator has configured one app for all runs, so that the app of the run is not needed.
    pub fn is_native(&self) -> bool {
        matches!(self.chosen, Chosen::Native(_))
    }

    /// Releases the resources of a finished run.
    pub fn end_run(&self, run: RunId) {
        self.built_in.end_run(run);
        match &self.chosen {
            Chosen::Warm(apps) => apps.end_run(run),
            Chosen::Official(apps) => apps.end_run(run),
            Chosen::Native(_) => {}
        }
    }

    /// The current apps.
    pub fn status(&self) -> Vec<AppStatus> {
        let Chosen::Warm(apps) = &self.chosen else { return Vec::new() };
        let status = |worker: warm::WorkerStatus| {
            Some(AppStatus {
                pid: Some(worker.pid),
                run_id: worker.run?,
                rss_bytes: worker.rss_bytes,
                state: if worker.busy { AppState::Working } else { AppState::Idle },
                since: worker.started,
            })
        };
        apps.status().into_iter().filter_map(status).collect()
    }

    /// Stops all apps.
    pub async fn close(&self) {
        match &self.chosen {
            Chosen::Warm(apps) => apps.close().await,
            Chosen::Official(apps) => apps.close(),
            Chosen::Native(_) => {}
        }
    }
}

impl Chosen {
    async fn start(
        config: &Config,
        objects: Objects,
        confinement: Confinement,
        watch: &Watch,
        log: &AppLog,
    ) -> Result<Chosen, Error> {
        let confinement = Arc::new(confinement);
        let directory = config.state_dir.join("work");
        let home = config.apps.flwr_home.clone().unwrap_or_else(|| config.state_dir.join("flwr"));
        for needed in [&directory, &home] {
            std::fs::create_dir_all(needed).map_err(|source| Error::Directory { path: needed.clone(), source })?;
        }
        match &config.apps.mode {
            AppMode::Warm(settings) => {
                let sandbox = Arc::new(sandbox(config)?);
                let setup = warm::Setup {
                    python: config.apps.python.clone(),
                    settings: settings.clone(),
                    assets: config.state_dir.join("assets"),
                    directory,
                    environment: vec![("FLWR_HOME".into(), home.into_os_string())],
                    confinement,
                    sandbox: Arc::clone(&sandbox),
                    objects,
                    watch: watch.clone(),
                    log: log.clone(),
                };
                let assets = setup.assets.clone();
                let apps = WarmApps::new(setup).map_err(|source| Error::Directory { path: assets, source })?;
                report_python(apps.check().await, config.apps.python_required)?;
                report_sandbox(&sandbox, watch);
                Ok(Chosen::Warm(apps))
            }
            AppMode::PerMessage => {
                let sandbox = Arc::new(sandbox(config)?);
                if let Err(error) = sandbox.prepare() {
                    tracing::warn!(python = %config.apps.python.display(), %error, "apps in Python cannot be started");
                }
                report_sandbox(&sandbox, watch);
                let interpreter = official::Interpreter {
                    python: config.apps.python.clone(),
                    flwr_home: home,
                    allow_dependency_installation: config.apps.allow_dependency_installation,
                    confinement,
                    sandbox,
                    scratches: official::Scratches::default(),
                };
                Chosen::official(config, official::Launch::PerMessage(interpreter), objects, log).await
            }
            AppMode::Process => Chosen::official(config, official::Launch::BySuperExec, objects, log).await,
            AppMode::Native { name, settings } => {
                let app = trellis_native::builtin(name, settings).map_err(Error::NativeApp)?;
                tracing::info!(app = name, "instructions are executed by a built-in app");
                Ok(Chosen::Native(NativeApps::new(app, objects)))
            }
        }
    }

    async fn official(
        config: &Config,
        launch: official::Launch,
        objects: Objects,
        log: &AppLog,
    ) -> Result<Chosen, Error> {
        let superexec_secret = config.apps.superexec_secret.clone();
        let address = config.apps.address;
        let settings = official::Settings { address, launch, superexec_secret, log: log.clone() };
        let apps = OfficialApps::start(settings, objects, &CancellationToken::new()).await?;
        Ok(Chosen::Official(apps))
    }
}

/// The sandbox of the node's apps. Fails if the kernel lacks a feature that the operator requires.
fn sandbox(config: &Config) -> Result<Sandbox, Error> {
    let (mut settings, python) = (config.apps.sandbox.clone(), config.apps.python.clone());
    settings.data.extend(config.node_config.values().filter_map(data_path));
    let over_tcp = config.apps.mode == AppMode::PerMessage;
    let sandbox = Sandbox::new(settings, python, config.state_dir.clone(), SCRATCH, over_tcp)?;
    let sandbox = sandbox.protect(config.key.clone());
    let path = config.state_dir.join(SCRATCH);
    sandbox.sweep().map_err(|source| Error::Directory { path, source })?;
    Ok(sandbox)
}

/// The file or directory that a node setting names. Apps receive the setting, so they must be able to read the path.
fn data_path(setting: &proto::Scalar) -> Option<DataPath> {
    let Some(proto::scalar::Scalar::String(text)) = &setting.scalar else { return None };
    let path = PathBuf::from(text);
    // Neither the root directory, nor values that are not paths.
    (path.is_absolute() && path.parent().is_some() && path.exists()).then_some(DataPath { path, writable: false })
}

fn report_sandbox(sandbox: &Sandbox, watch: &Watch) {
    sandbox.log(|warning, text| if warning { tracing::warn!("{text}") } else { tracing::info!("{text}") });
    watch.sandbox(sandbox.level());
}

/// Without Python a node still executes runs with built-in apps. Runs with other apps get an error reply.
fn report_python(found: Result<WorkerInfo, StartError>, required: bool) -> Result<(), Error> {
    match found {
        Ok(WorkerInfo { python, flwr }) => {
            tracing::info!(python, flwr, "apps are kept loaded between instructions");
            Ok(())
        }
        Err(error) if error.is_about_python() && !required => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "apps in Python are refused; built-in apps are available"
            );
            Ok(())
        }
        Err(error) => Err(Error::Python(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_starts_without_python_unless_its_operator_named_one() {
        let missing = || StartError::NoPython { python: "python3".into(), source: std::io::ErrorKind::NotFound.into() };
        let without_flwr = || StartError::Unusable { python: "python3".into(), reason: "no flwr".to_owned() };
        let slow = || StartError::Late { python: "python3".into() };
        for (error, needed, starts) in [
            (missing(), false, true),
            (missing(), true, false),
            (without_flwr(), false, true),
            (without_flwr(), true, false),
            (slow(), false, false),
        ] {
            let error_text = error.to_string();
            assert_eq!(report_python(Err(error), needed).is_ok(), starts, "{error_text}");
        }
    }
}
