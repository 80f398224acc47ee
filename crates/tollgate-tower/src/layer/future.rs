//! A request on its way. Nothing is charged before it is polled, and nothing boxed unless it has to wait: for the response of a
//! shared store, or for its turn.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::TollgateBody;
use super::peer_addr::peer_of;
use crate::gate::{Gate, RequestContext, Settled, at_once};

/// What becomes of a request that has to wait.
struct Waited {
    request: Parts,
    context: RequestContext,
    admitted: Result<(), Response<Bytes>>,
}

type Waiting = Pin<Box<dyn Future<Output = Waited> + Send>>;

pin_project! {
    /// The response of a [`TollgateService`](super::TollgateService).
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        gate: Arc<Gate>,
        // Until it is called.
        service: Option<S>,
        #[pin]
        state: State<S::Future, B>,
    }
}

pin_project! {
    // What is optional is there until it is taken.
    #[project = StateProjected]
    enum State<F, B> {
        New { request: Option<Request<B>> },
        Waiting { waiting: Waiting, body: Option<B> },
        Running { #[pin] response: F, context: RequestContext },
        Answered { response: Option<Response<Bytes>> },
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn new(gate: Arc<Gate>, request: Request<B>, service: S) -> Self {
        Self {
            gate,
            service: Some(service),
            state: State::New {
                request: Some(request),
            },
        }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<TollgateBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjected::New { request } => match request.take() {
                    Some(request) => begin(this.gate, request, this.service),
                    None => None,
                },
                StateProjected::Waiting { waiting, body } => {
                    let waited = ready!(waiting.as_mut().poll(context));
                    let Waited {
                        request,
                        context,
                        admitted,
                    } = waited;
                    match admitted {
                        Ok(()) => (body.take())
                            .and_then(|body| pass(this.gate, request, body, context, this.service)),
                        Err(response) => Some(stop(this.gate, &context, response)),
                    }
                }
                StateProjected::Running {
                    response,
                    context: known,
                } => {
                    let mut response = ready!(response.poll(context))?;
                    this.gate.add_headers(known, response.headers_mut());
                    this.gate.keep_decision(known, &mut response);
                    return Poll::Ready(Ok(response.map(TollgateBody::of_service)));
                }
                StateProjected::Answered { response } => match response.take() {
                    Some(response) => {
                        return Poll::Ready(Ok(response.map(TollgateBody::of_gate)));
                    }
                    None => None,
                },
            };
            match next {
                Some(next) => this.state.set(next),
                // It was polled after its end.
                None => return Poll::Pending,
            }
        }
    }
}

fn begin<S, B>(
    gate: &Arc<Gate>,
    request: Request<B>,
    service: &mut Option<S>,
) -> Option<State<S::Future, B>>
where
    S: Service<Request<B>>,
{
    let (mut request, body) = request.into_parts();
    let peer = peer_of(&request.extensions, gate.peer.as_ref());
    let mut context = RequestContext::new(peer, gate.policies.policy());
    if gate.passes_uncharged(&request.method, &request.headers) {
        return match gate.pass_uncharged(&mut request, &mut context) {
            Some(refused) => Some(stop(gate, &context, refused)),
            None => pass(gate, request, body, context, service),
        };
    }
    let mut is_queued = false;
    if gate.answers_at_once
        && let Some(decided) = at_once(gate.decide(&request, &mut context))
    {
        match gate.settle(&mut request, &mut context, decided) {
            Settled::Go => return pass(gate, request, body, context, service),
            Settled::Stop(response) => return Some(stop(gate, &context, response)),
            Settled::Queued => is_queued = true,
        }
    }
    let gate = Arc::clone(gate);
    let waiting: Waiting = Box::pin(async move {
        let admitted = match is_queued {
            true => gate.queue(&request, &mut context).await,
            false => gate.admit(&mut request, &mut context).await,
        };
        Waited {
            request,
            context,
            admitted,
        }
    });
    Some(State::Waiting {
        waiting,
        body: Some(body),
    })
}

fn pass<S, B>(
    gate: &Gate,
    mut request: Parts,
    body: B,
    context: RequestContext,
    service: &mut Option<S>,
) -> Option<State<S::Future, B>>
where
    S: Service<Request<B>>,
{
    if gate.hands_on_decisions
        && let Some(decided) = context.decided()
    {
        request.extensions.insert(decided.clone());
    }
    Some(State::Running {
        response: service.take()?.call(Request::from_parts(request, body)),
        context,
    })
}

fn stop<F, B>(gate: &Gate, context: &RequestContext, mut response: Response<Bytes>) -> State<F, B> {
    gate.keep_decision(context, &mut response);
    State::Answered {
        response: Some(response),
    }
}
