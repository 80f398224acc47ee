//! Sends spans to a collector, over gRPC or HTTP, from a thread of its own. A collector that is away costs spans and nothing else.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::PathAndQuery;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use prost::Message as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::TraceMetrics;
use super::otlp::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, InstrumentationScope, KeyValue,
    Resource, ResourceSpans, ScopeSpans, Span,
};
use tollgate_config::{TracesConfig, TracesProtocol};

/// The most spans of one message.
const MOST_TOGETHER: usize = 512;

/// How long spans wait for others to go with.
const GATHER: Duration = Duration::from_millis(500);

/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The most bytes of an answer that are read.
const LONGEST_ANSWER: usize = 64 * 1_024;

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

pub(super) struct Exporter {
    endpoint: Uri,
    protocol: TracesProtocol,
    resource: Resource,
    metrics: TraceMetrics,
    /// Whether it was said already that spans are lost.
    is_failing: bool,
}

impl Exporter {
    pub(super) fn new(config: &TracesConfig, metrics: TraceMetrics) -> Self {
        Self {
            endpoint: config.endpoint.clone(),
            protocol: config.protocol,
            resource: Resource {
                attributes: vec![
                    KeyValue::text("service.name", &config.service_name),
                    KeyValue::text("service.version", env!("CARGO_PKG_VERSION")),
                ],
            },
            metrics,
            is_failing: false,
        }
    }

    /// Sends what comes, until somebody wants the end: then what is left, and says so.
    pub(super) async fn run(
        mut self,
        mut waiting: Receiver<Span>,
        mut end: oneshot::Receiver<oneshot::Sender<()>>,
    ) {
        let channel = self.channel();
        let done = loop {
            let mut batch = Vec::new();
            let ending = tokio::select! {
                ending = &mut end => Some(ending),
                received = waiting.recv_many(&mut batch, MOST_TOGETHER) => match received {
                    0 => return,
                    _ => None,
                },
            };
            let ending = match ending {
                None => gather(&mut waiting, &mut batch, &mut end).await,
                ending => ending,
            };
            self.send(&channel, batch).await;
            if let Some(done) = ending {
                break done.ok();
            }
        };
        waiting.close();
        let mut rest = Vec::new();
        while waiting.recv_many(&mut rest, MOST_TOGETHER).await > 0 {
            self.send(&channel, std::mem::take(&mut rest)).await;
        }
        if let Some(done) = done {
            // Who does not wait any more needs not hear it.
            let _ = done.send(());
        }
    }

    fn channel(&self) -> Option<Channel> {
        let endpoint = Endpoint::from(self.endpoint.clone())
            .connect_timeout(PATIENCE)
            .timeout(PATIENCE);
        (self.protocol == TracesProtocol::Grpc).then(|| endpoint.connect_lazy())
    }

    async fn send(&mut self, channel: &Option<Channel>, batch: Vec<Span>) {
        if batch.is_empty() {
            return;
        }
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let request = self.request(batch);
        let sending = async {
            match channel {
                Some(channel) => over_grpc(channel.clone(), request).await,
                None => over_http(&self.endpoint, &request).await,
            }
        };
        let sent = match tokio::time::timeout(PATIENCE, sending).await {
            Ok(sent) => sent,
            Err(_) => Err("it takes too long".to_owned()),
        };
        match sent {
            Ok(rejected) => {
                let rejected = rejected.min(count);
                self.metrics.sent.inc_by(count - rejected);
                self.metrics.lost.inc_by(rejected);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the collector takes traces again");
                }
            }
            Err(error) => {
                self.metrics.lost.inc_by(count);
                // Once, until it goes again.
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(
                        error,
                        "the collector takes no traces: they are lost and counted"
                    );
                }
            }
        }
    }

    fn request(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        let scope = InstrumentationScope {
            name: "tollgate".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(scope),
                    spans,
                }],
            }],
        }
    }
}

/// Waits a little for others to go with these; says if somebody wants the end meanwhile.
async fn gather(
    waiting: &mut Receiver<Span>,
    batch: &mut Vec<Span>,
    end: &mut oneshot::Receiver<oneshot::Sender<()>>,
) -> Option<Result<oneshot::Sender<()>, oneshot::error::RecvError>> {
    let over = tokio::time::sleep(GATHER);
    tokio::pin!(over);
    while batch.len() < MOST_TOGETHER {
        let room = MOST_TOGETHER - batch.len();
        tokio::select! {
            ending = &mut *end => return Some(ending),
            () = &mut over => break,
            received = waiting.recv_many(batch, room) => if received == 0 { break },
        }
    }
    None
}

/// How many the collector rejected.
type Sent = Result<u64, String>;

async fn over_grpc(channel: Channel, request: ExportTraceServiceRequest) -> Sent {
    let mut client = tonic::client::Grpc::new(channel);
    let unreachable = |error: tonic::transport::Error| format!("it cannot be reached: {error}");
    client.ready().await.map_err(unreachable)?;
    let codec = ProstCodec::<ExportTraceServiceRequest, ExportTraceServiceResponse>::default();
    let path = PathAndQuery::from_static(EXPORT);
    let answer = client
        .unary(tonic::Request::new(request), path, codec)
        .await;
    // Its own words may be anything.
    let answer = answer.map_err(|status| format!("it answers {:?}", status.code()))?;
    Ok(rejected(answer.get_ref()))
}

/// On a connection of its own: there is one message in half a second at most.
async fn over_http(endpoint: &Uri, request: &ExportTraceServiceRequest) -> Sent {
    let authority = endpoint
        .authority()
        .map_or("", |authority| authority.as_str());
    let port = endpoint.port_u16().unwrap_or(4318);
    let host = endpoint.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(|error| format!("it cannot be reached: {error}"))?;
    let broken = |error: hyper::Error| format!("it does not answer: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let connection = tokio::spawn(connection);
    let request = Request::post("/v1/traces")
        .header(HOST, authority)
        .header(CONTENT_TYPE, "application/x-protobuf")
        .body(Full::<Bytes>::from(request.encode_to_vec()))
        .map_err(|error| error.to_string())?;
    let answer = sender.send_request(request).await.map_err(broken)?;
    let status = answer.status();
    let body = http_body_util::Limited::new(answer.into_body(), LONGEST_ANSWER);
    let body = body.collect().await.map(Collected::to_bytes);
    connection.abort();
    if !status.is_success() {
        return Err(format!("it answers {}", status.as_u16()));
    }
    // What cannot be read says that nothing was rejected.
    let answer = body
        .ok()
        .and_then(|body| ExportTraceServiceResponse::decode(body).ok());
    Ok(answer.as_ref().map_or(0, rejected))
}

fn rejected(answer: &ExportTraceServiceResponse) -> u64 {
    let partial = answer.partial_success.as_ref();
    partial.map_or(0, |partial| {
        u64::try_from(partial.rejected_spans).unwrap_or(0)
    })
}
