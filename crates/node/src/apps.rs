//! Who carries out instructions on this node: one of three kinds, behind one door.

mod native;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use trellis_core::id::RunId;

use crate::app::{Job, Outcome};
use crate::config::{AppMode, Config};
use crate::error::Error;
use crate::objects::Objects;
use crate::official::{self, OfficialApps};
use crate::resources::Confinement;
use crate::warm::{self, WarmApps};
use crate::watch::{AppState, AppStatus, Watch};
use native::NativeApps;

pub enum AppRunner {
    Warm(WarmApps),
    Official(OfficialApps),
    Native(NativeApps),
}

impl AppRunner {
    /// Makes everything ready that apps need.
    pub async fn start(
        config: &Config,
        objects: Objects,
        confinement: Confinement,
        watch: &Watch,
    ) -> Result<AppRunner, Error> {
        let confinement = Arc::new(confinement);
        let directory = config.state_dir.join("work");
        let home = config.apps.flwr_home.clone().unwrap_or_else(|| config.state_dir.join("flwr"));
        for needed in [&directory, &home] {
            std::fs::create_dir_all(needed).map_err(|source| Error::Directory { path: needed.clone(), source })?;
        }
        match &config.apps.mode {
            AppMode::Warm(settings) => {
                let setup = warm::Setup {
                    python: config.apps.python.clone(),
                    settings: settings.clone(),
                    assets: config.state_dir.join("assets"),
                    directory,
                    environment: vec![("FLWR_HOME".into(), home.into_os_string())],
                    confinement,
                    objects,
                    watch: watch.clone(),
                };
                let assets = setup.assets.clone();
                let apps = WarmApps::new(setup).map_err(|source| Error::Directory { path: assets, source })?;
                let found = apps.check().await.map_err(Error::Python)?;
                tracing::info!(python = found.python, flwr = found.flwr, "apps are kept loaded between instructions");
                Ok(AppRunner::Warm(apps))
            }
            AppMode::PerMessage => {
                let interpreter = official::Interpreter {
                    python: config.apps.python.clone(),
                    flwr_home: home,
                    allow_dependency_installation: config.apps.allow_dependency_installation,
                    confinement,
                };
                AppRunner::official(config, official::Launch::PerMessage(interpreter), objects).await
            }
            AppMode::Process => AppRunner::official(config, official::Launch::BySuperExec, objects).await,
            AppMode::Native { name, settings } => {
                let app = trellis_native::builtin(name, settings).map_err(Error::NativeApp)?;
                tracing::info!(app = name, "instructions are carried out by an app of this program");
                Ok(AppRunner::Native(NativeApps::new(app, objects)))
            }
        }
    }

    async fn official(config: &Config, launch: official::Launch, objects: Objects) -> Result<AppRunner, Error> {
        let superexec_secret = config.apps.superexec_secret.clone();
        let settings = official::Settings { address: config.apps.address, launch, superexec_secret };
        let apps = OfficialApps::start(settings, objects, &CancellationToken::new()).await?;
        Ok(AppRunner::Official(apps))
    }

    /// Carries out an instruction. Whoever drops the future ends the app.
    pub async fn execute(&self, job: Job) -> Outcome {
        match self {
            AppRunner::Warm(apps) => apps.execute(job).await,
            AppRunner::Official(apps) => apps.execute(job).await,
            AppRunner::Native(apps) => apps.execute(job).await,
        }
    }

    /// Whether the app is part of this program: then that of the run is not needed.
    pub fn is_native(&self) -> bool {
        matches!(self, AppRunner::Native(_))
    }

    /// Nothing more comes for this run.
    pub fn end_run(&self, run: RunId) {
        if let AppRunner::Warm(apps) = self {
            apps.end_run(run);
        }
    }

    /// The apps that there are now.
    pub fn status(&self) -> Vec<AppStatus> {
        let AppRunner::Warm(apps) = self else { return Vec::new() };
        let status = |worker: warm::WorkerStatus| {
            Some(AppStatus {
                pid: Some(worker.pid),
                run_id: worker.run?,
                rss_bytes: worker.rss_bytes,
                state: if worker.busy { AppState::Working } else { AppState::Idle },
                since: worker.started.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            })
        };
        apps.status().into_iter().filter_map(status).collect()
    }

    /// Ends everything.
    pub async fn close(&self) {
        match self {
            AppRunner::Warm(apps) => apps.close().await,
            AppRunner::Official(apps) => apps.close(),
            AppRunner::Native(_) => {}
        }
    }
}
