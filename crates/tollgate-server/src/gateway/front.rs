//! The first that a request meets: it is refused or gets its name, and what comes of it is counted and logged.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Either;
use pin_project_lite::pin_project;
use tollgate_tower::layer::{KeepDecision, PeerAddr};
use tollgate_tower::policy::Head;
use tower_service::Service;

use super::access_log::{AccessLog, Asked};
use super::account::Account;
use super::connection_field::drop_named_by_connection;
use super::header_names::HeaderNames;
use super::metrics::GatewayMetrics;
use super::problem::Whole;
use super::refusal::{refusal, without_h2c};
use super::request_id::{RequestIds, X_REQUEST_ID, given};
use super::rest::{Lender, LentBody, Rest, lend};
use super::tunnel::Tunnel;
use crate::door::Door;
use crate::listen::Arriving;
use crate::traces::{Parent, Span};

/// What all requests of a worker have in common.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) door: Door,
    pub(super) ids: RequestIds,
    pub(super) metrics: GatewayMetrics,
    pub(super) log: Option<AccessLog>,
    pub(super) header_names: HeaderNames,
}

/// The service that stands in front of the decision.
#[derive(Clone, Debug)]
pub(super) struct Front<S> {
    desk: Arc<Desk>,
    inner: S,
}

impl<S> Front<S> {
    pub(super) fn new(desk: Desk, inner: S) -> Self {
        Self {
            desk: Arc::new(desk),
            inner,
        }
    }
}

impl<S, B> Service<Request<Arriving>> for Front<S>
where
    S: Service<Request<LentBody>, Response = Response<B>, Error = Infallible>,
{
    type Response = Response<FrontBody<B>>;
    type Error = Infallible;
    type Future = FrontFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Arriving>) -> FrontFuture<S::Future> {
        let refused = refusal(&request, self.desk.header_names);
        self.desk.header_names.drop_from(request.headers_mut());
        drop_named_by_connection(request.headers_mut());
        let id = self.desk.name(&mut request);
        let mut account = Account::open(&self.desk, &request, &id);
        account.span = self.desk.span(&mut request);
        let account = Some(account);
        if let Some(refused) = refused {
            let response = refused.response(request.version());
            return FrontFuture::Refused {
                response: Some(response),
                id: Some(id),
                account,
            };
        }
        without_h2c(&mut request);
        let (request, lender) = lend(request);
        FrontFuture::Running {
            response: self.inner.call(request),
            lender,
            id: Some(id),
            account,
        }
    }
}

impl Desk {
    /// The request's name, which goes on with it: the one that a trusted proxy gave it, or a new one.
    fn name<B>(&self, request: &mut Request<B>) -> HeaderValue {
        let is_trusted = || {
            let identity = self.door.policy();
            identity.identity().trusts(peer_of(request))
        };
        match given(request.headers()).filter(|_| is_trusted()) {
            Some(given) => given.clone(),
            None => {
                let id = self.ids.make();
                request.headers_mut().insert(X_REQUEST_ID, id.clone());
                id
            }
        }
    }

    /// A span for the request, if it is drawn, which whoever is asked next hears of.
    fn span<B>(&self, request: &mut Request<B>) -> Option<Box<Span>> {
        let tracer = self.door.tracer()?;
        if !tracer.draws() {
            return None;
        }
        let mut span = tracer.span("", Parent::of(request.headers()));
        let head = Head {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
        };
        let route = self.door.route_of(&head, peer_of(request));
        span.asked(request.method(), route.as_deref());
        span.pass_on(request.headers_mut());
        request.extensions_mut().insert(KeepDecision);
        Some(Box::new(span))
    }

    pub(super) fn asked<B>(&self, request: &Request<B>, id: &HeaderValue) -> Asked {
        let policy = self.door.policy();
        let (identity, clients) = (policy.identity(), policy.clients());
        let (peer, headers) = (peer_of(request), request.headers());
        let (ip, client) = match identity.caller(peer, headers, clients) {
            Ok(caller) => (caller.ip(), caller.client().map(str::to_owned)),
            // It will be refused, and nobody knows who it was but for the address.
            Err(_) => (identity.caller_by_address(peer, headers).ip(), None),
        };
        Asked {
            at: SystemTime::now(),
            id: id.clone(),
            ip,
            client,
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
        }
    }
}

fn peer_of<B>(request: &Request<B>) -> IpAddr {
    let peer = request.extensions().get::<PeerAddr>();
    peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.ip())
}

pin_project! {
    // What is optional is there until it is taken.
    #[project = FrontProjected]
    pub(super) enum FrontFuture<F>
    where
        F: Future,
    {
        Running { #[pin] response: F, lender: Option<Lender>, id: Option<HeaderValue>, account: Option<Account> },
        // The answer is there, and waits until what is left of the body is read.
        Reading { rest: Box<Rest>, output: Option<F::Output>, id: Option<HeaderValue>, account: Option<Account> },
        Refused { response: Option<Response<Whole>>, id: Option<HeaderValue>, account: Option<Account> },
    }
}

impl<F, B> Future for FrontFuture<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    type Output = Result<Response<FrontBody<B>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (response, id, account) = loop {
            let reading = match self.as_mut().project() {
                FrontProjected::Running {
                    response,
                    lender,
                    id,
                    account,
                } => {
                    let output = ready!(response.poll(context));
                    match lender.take().and_then(Lender::rest) {
                        Some(rest) => Self::Reading {
                            rest: Box::new(rest),
                            output: Some(output),
                            id: id.take(),
                            account: account.take(),
                        },
                        None => {
                            let Ok(response) = output;
                            break (Some(response.map(Either::Left)), id.take(), account.take());
                        }
                    }
                }
                FrontProjected::Reading {
                    rest,
                    output,
                    id,
                    account,
                } => {
                    let can_go_on = ready!(rest.poll_read(context));
                    let response = output.take().map(|Ok(mut response)| {
                        if !can_go_on {
                            let close = HeaderValue::from_static("close");
                            response.headers_mut().insert(CONNECTION, close);
                        }
                        response.map(Either::Left)
                    });
                    break (response, id.take(), account.take());
                }
                FrontProjected::Refused {
                    response,
                    id,
                    account,
                } => {
                    let response = response.take().map(|whole| whole.map(Either::Right));
                    break (response, id.take(), account.take());
                }
            };
            self.set(reading);
        };
        let (Some(mut response), Some(id), Some(mut account)) = (response, id, account) else {
            // It was polled after its end.
            return Poll::Pending;
        };
        account.answered(&response);
        response.headers_mut().insert(X_REQUEST_ID, id);
        let tunnel = response.extensions_mut().remove::<Tunnel>();
        let account = match tunnel {
            Some(tunnel) => {
                account.goes_on_in(&tunnel);
                None
            }
            None => Some(account),
        };
        Poll::Ready(Ok(response.map(|body| FrontBody { body, account })))
    }
}

pin_project! {
    /// The body of an answer, counted.
    pub(super) struct FrontBody<B> {
        #[pin]
        body: Either<B, Whole>,
        // Not if it was handed on to what comes after the answer.
        account: Option<Account>,
    }
}

impl<B> Body for FrontBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        let Some(account) = this.account else {
            return Poll::Ready(frame);
        };
        match &frame {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                account.sent(length, frame.is_trailers() || this.body.is_end_stream());
            }
            Some(Err(_)) => {}
            None => account.sent(0, true),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
