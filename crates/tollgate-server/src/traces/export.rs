//! Exports spans to a collector, over gRPC or HTTP, in batches.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;
use tollgate_config::{TracesConfig, TracesProtocol};
use tonic::transport::{Channel, Endpoint};

use super::TraceMetrics;
use super::span::{attribute, text};

/// Maximum number of spans in one message.
const MAX_BATCH: usize = 512;

/// How long the first span of a batch waits for others.
const BATCH_DELAY: Duration = Duration::from_millis(500);

/// How long a collector may take.
const TIMEOUT: Duration = Duration::from_secs(5);

const MAX_RESPONSE_BYTES: usize = 64 * 1_024;

pub(super) struct Exporter {
    collector: Collector,
    resource: Resource,
    metrics: TraceMetrics,
    is_failing: bool,
}

impl Exporter {
    pub(super) fn new(config: &TracesConfig, metrics: TraceMetrics) -> Self {
        Self {
            collector: Collector::new(config),
            resource: Resource {
                attributes: vec![
                    attribute("service.name", text(&config.service_name)),
                    attribute("service.version", text(env!("CARGO_PKG_VERSION"))),
                ],
                ..Resource::default()
            },
            metrics,
            is_failing: false,
        }
    }

    /// Exports spans until `stop` is cancelled, and then those that are queued.
    pub(super) async fn run(mut self, mut queued: Receiver<Span>, stop: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            let received = stop.run_until_cancelled(queued.recv_many(&mut batch, MAX_BATCH));
            match received.await {
                Some(0) => return,
                Some(_) => fill(&mut batch, &mut queued, &stop).await,
                None => break,
            }
            self.export(std::mem::take(&mut batch)).await;
        }
        queued.close();
        while queued.recv_many(&mut batch, MAX_BATCH).await > 0 {
            self.export(std::mem::take(&mut batch)).await;
        }
    }

    async fn export(&mut self, batch: Vec<Span>) {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let exporting = self.collector.export(self.request(batch));
        let exported = match tokio::time::timeout(TIMEOUT, exporting).await {
            Ok(exported) => exported,
            Err(_) => Err(format!("no response within {TIMEOUT:?}")),
        };
        let lost = match &exported {
            Ok(response) => rejected(response).min(count),
            Err(_) => count,
        };
        self.metrics.sent.inc_by(count - lost);
        self.metrics.lost.inc_by(lost);
        let was_failing = std::mem::replace(&mut self.is_failing, exported.is_err());
        match exported {
            Ok(_) if was_failing => tracing::info!("exporting traces to the collector again"),
            Err(error) if !was_failing => {
                let help = "check traces.endpoint and the collector";
                tracing::warn!(
                    error,
                    "failed to export traces, dropping and counting them: {help}"
                );
            }
            _ => {}
        }
    }

    fn request(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        let scope = InstrumentationScope {
            name: "tollgate".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let scope_spans = ScopeSpans {
            scope: Some(scope),
            spans,
            ..ScopeSpans::default()
        };
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![scope_spans],
                ..ResourceSpans::default()
            }],
        }
    }
}

/// Waits a moment for more spans.
async fn fill(batch: &mut Vec<Span>, queued: &mut Receiver<Span>, stop: &CancellationToken) {
    let filling = async {
        while batch.len() < MAX_BATCH && queued.recv_many(batch, MAX_BATCH - batch.len()).await > 0
        {
        }
    };
    let _ = tokio::time::timeout(BATCH_DELAY, stop.run_until_cancelled(filling)).await;
}

/// How many spans the collector rejected.
fn rejected(response: &ExportTraceServiceResponse) -> u64 {
    let partial = response.partial_success.as_ref();
    partial.map_or(0, |partial| partial.rejected_spans.try_into().unwrap_or(0))
}

/// Adds the innermost cause, which is the informative one.
fn with_cause(error: &dyn Error) -> String {
    match std::iter::successors(error.source(), |&cause| cause.source()).last() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

enum Collector {
    Grpc(TraceServiceClient<Channel>),
    Http(Box<Client<HttpConnector, Full<Bytes>>>, Uri),
}

impl Collector {
    fn new(config: &TracesConfig) -> Self {
        match config.protocol {
            TracesProtocol::Grpc => {
                let endpoint = Endpoint::from(config.endpoint.clone()).connect_timeout(TIMEOUT);
                Self::Grpc(TraceServiceClient::new(endpoint.connect_lazy()))
            }
            TracesProtocol::Http => {
                let mut uri = config.endpoint.clone().into_parts();
                uri.path_and_query = Some(http::uri::PathAndQuery::from_static("/v1/traces"));
                let client = Client::builder(TokioExecutor::new()).build_http();
                Self::Http(Box::new(client), Uri::from_parts(uri).unwrap_or_default())
            }
        }
    }

    async fn export(
        &mut self,
        request: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, String> {
        match self {
            Self::Grpc(client) => match client.export(request).await {
                Ok(response) => Ok(response.into_inner()),
                // The collector chooses the message, which may be anything.
                Err(status) => Err(format!("gRPC status {:?}", status.code())),
            },
            Self::Http(client, uri) => {
                let request = Request::post(&*uri)
                    .header(CONTENT_TYPE, "application/x-protobuf")
                    .body(request.encode_to_vec().into());
                let response = client
                    .request(request.map_err(|error| error.to_string())?)
                    .await
                    .map_err(|error| with_cause(&error))?;
                if !response.status().is_success() {
                    return Err(format!("HTTP status {}", response.status()));
                }
                let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
                let body = body.collect().await.unwrap_or_default().to_bytes();
                // A malformed response rejects no spans.
                Ok(ExportTraceServiceResponse::decode(body).unwrap_or_default())
            }
        }
    }
}
