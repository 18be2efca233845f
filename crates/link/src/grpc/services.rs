//! The services as tonic wants them. Each call is one line: who asks, what is asked, what is answered.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use trellis_core::id::RunId;
use trellis_core::refusal::Refusal;
use trellis_wire::proto::*;

use super::Line;
use super::status::status;
use crate::api::{app, control, fleet};
use crate::link::Link;

/// Answers that a slow reader of a log may leave lying.
const LOG_BACKLOG: usize = 4;

fn answer<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(status)
}

pub struct FleetService(pub Arc<Link>);

macro_rules! fleet_service {
    ($($call:ident($request:ty) -> $response:ty;)+) => {
        #[tonic::async_trait]
        impl fleet_server::Fleet for FleetService {
            $(async fn $call(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                let caller = fleet::Caller::verify(&self.0, request.metadata().as_ref()).map_err(status)?;
                answer(fleet::$call(&self.0, &caller, request.into_inner()).await)
            })+
        }
    };
}

fleet_service! {
    register_node(RegisterNodeFleetRequest) -> RegisterNodeFleetResponse;
    activate_node(ActivateNodeRequest) -> ActivateNodeResponse;
    deactivate_node(DeactivateNodeRequest) -> DeactivateNodeResponse;
    unregister_node(UnregisterNodeFleetRequest) -> UnregisterNodeFleetResponse;
    send_node_heartbeat(SendNodeHeartbeatRequest) -> SendNodeHeartbeatResponse;
    pull_messages(PullMessagesRequest) -> PullMessagesResponse;
    push_messages(PushMessagesRequest) -> PushMessagesResponse;
    get_run(GetRunRequest) -> GetRunResponse;
    get_fab(GetFabRequest) -> GetFabResponse;
    push_object(PushObjectRequest) -> PushObjectResponse;
    pull_object(PullObjectRequest) -> PullObjectResponse;
    confirm_message_received(ConfirmMessageReceivedRequest) -> ConfirmMessageReceivedResponse;
}

pub struct AppService(pub Arc<Link>);

macro_rules! app_service {
    ($($call:ident($request:ty) -> $response:ty;)+) => {
        #[tonic::async_trait]
        impl server_app_io_server::ServerAppIo for AppService {
            async fn list_apps_to_launch(
                &self,
                _: Request<ListAppsToLaunchRequest>,
            ) -> Result<Response<ListAppsToLaunchResponse>, Status> {
                answer(app::list_apps_to_launch(&self.0).await)
            }

            async fn pull_app_inputs(
                &self,
                request: Request<PullAppInputsRequest>,
            ) -> Result<Response<PullAppInputsResponse>, Status> {
                let line = request.extensions().get::<Line>().cloned();
                let inputs = answer(app::pull_app_inputs(&self.0, request.into_inner()).await)?;
                let run = inputs.get_ref().run.as_ref().map(|run| RunId(run.run_id));
                if let (Some(line), Some(run)) = (line, run) {
                    let (link, closed) = (Arc::clone(&self.0), line.closed());
                    tokio::spawn(async move {
                        closed.await;
                        app::hangup(&link, run).await;
                    });
                }
                Ok(inputs)
            }

            $(async fn $call(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                answer(app::$call(&self.0, request.into_inner()).await)
            })+
        }
    };
}

app_service! {
    request_token(RequestTokenRequest) -> RequestTokenResponse;
    get_nodes(GetNodesRequest) -> GetNodesResponse;
    push_messages(PushAppMessagesRequest) -> PushAppMessagesResponse;
    pull_messages(PullAppMessagesRequest) -> PullAppMessagesResponse;
    get_run(GetRunRequest) -> GetRunResponse;
    get_fab(GetFabRequest) -> GetFabResponse;
    push_app_outputs(PushAppOutputsRequest) -> PushAppOutputsResponse;
    update_run_status(UpdateRunStatusRequest) -> UpdateRunStatusResponse;
    get_run_status(GetRunStatusRequest) -> GetRunStatusResponse;
    push_logs(PushLogsRequest) -> PushLogsResponse;
    send_app_heartbeat(SendAppHeartbeatRequest) -> SendAppHeartbeatResponse;
    push_object(PushObjectRequest) -> PushObjectResponse;
    pull_object(PullObjectRequest) -> PullObjectResponse;
    confirm_message_received(ConfirmMessageReceivedRequest) -> ConfirmMessageReceivedResponse;
}

pub struct ControlService(pub Arc<Link>);

type LogStream = std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<StreamLogsResponse, Status>> + Send>>;

#[tonic::async_trait]
impl control_server::Control for ControlService {
    type StreamLogsStream = LogStream;

    async fn start_run(&self, request: Request<StartRunRequest>) -> Result<Response<StartRunResponse>, Status> {
        answer(control::start_run(&self.0, request.into_inner()).await)
    }

    async fn stop_run(&self, request: Request<StopRunRequest>) -> Result<Response<StopRunResponse>, Status> {
        answer(control::stop_run(&self.0, request.into_inner()).await)
    }

    async fn stream_logs(&self, request: Request<StreamLogsRequest>) -> Result<Response<LogStream>, Status> {
        let (send, receive) = mpsc::channel(LOG_BACKLOG);
        let link = Arc::clone(&self.0);
        tokio::spawn(async move {
            let streamed = tokio::select! {
                streamed = control::stream_logs(&link, request.into_inner(), &send) => streamed,
                () = send.closed() => Ok(()),
            };
            if let Err(refusal) = streamed {
                let _ = send.send(Err(refusal)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receive).map(|item| item.map_err(status)))))
    }

    async fn list_runs(&self, request: Request<ListRunsRequest>) -> Result<Response<ListRunsResponse>, Status> {
        answer(control::list_runs(&self.0, request.into_inner()).await)
    }

    async fn get_login_details(
        &self,
        _: Request<GetLoginDetailsRequest>,
    ) -> Result<Response<GetLoginDetailsResponse>, Status> {
        Ok(Response::new(control::get_login_details()))
    }

    async fn get_auth_tokens(
        &self,
        _: Request<GetAuthTokensRequest>,
    ) -> Result<Response<GetAuthTokensResponse>, Status> {
        Err(status(control::get_auth_tokens()))
    }

    async fn pull_artifacts(
        &self,
        _: Request<PullArtifactsRequest>,
    ) -> Result<Response<PullArtifactsResponse>, Status> {
        Err(status(control::pull_artifacts()))
    }

    async fn register_node(
        &self,
        request: Request<RegisterNodeRequest>,
    ) -> Result<Response<RegisterNodeResponse>, Status> {
        answer(control::register_node(&self.0, request.into_inner()).await)
    }

    async fn unregister_node(
        &self,
        request: Request<UnregisterNodeRequest>,
    ) -> Result<Response<UnregisterNodeResponse>, Status> {
        answer(control::unregister_node(&self.0, request.into_inner()).await)
    }

    async fn list_nodes(&self, _: Request<ListNodesRequest>) -> Result<Response<ListNodesResponse>, Status> {
        answer(control::list_nodes(&self.0).await)
    }

    async fn list_federations(
        &self,
        _: Request<ListFederationsRequest>,
    ) -> Result<Response<ListFederationsResponse>, Status> {
        Ok(Response::new(control::list_federations()))
    }

    async fn show_federation(
        &self,
        request: Request<ShowFederationRequest>,
    ) -> Result<Response<ShowFederationResponse>, Status> {
        answer(control::show_federation(&self.0, request.into_inner()).await)
    }
}
