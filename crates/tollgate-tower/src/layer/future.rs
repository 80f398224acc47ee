//! A request on its way. Nothing is charged before it is polled, and nothing boxed unless it has to wait: for the answer of a shared
//! store, or for its turn.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::TollgateBody;
use super::decided::Decided;
use super::gate::{Admission, Gate, Settled};
use super::place::at_once;
use crate::answer::Answers;

type Waiting = Pin<Box<dyn Future<Output = Option<Admission>> + Send>>;

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
        Waiting { admission: Waiting, body: Option<B> },
        Running { #[pin] response: F, decided: Option<Decided>, answers: Option<Arc<Answers>>, keeps: bool },
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
                StateProjected::Waiting { admission, body } => {
                    let admission = ready!(admission.as_mut().poll(context));
                    (admission.zip(body.take())).and_then(|(admission, body)| {
                        go_on(this.gate, admission, body, this.service)
                    })
                }
                StateProjected::Running {
                    response,
                    decided,
                    answers,
                    keeps,
                } => {
                    let mut response = ready!(response.poll(context))?;
                    if let Some(decided) = decided.take() {
                        let answers = answers.as_deref().unwrap_or(&this.gate.answers);
                        answers.add(&decided, response.headers_mut());
                        if *keeps {
                            response.extensions_mut().insert(decided);
                        }
                    }
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
    let is_unasked = gate.passes_unasked(request.method(), request.headers());
    let (mut parts, body) = request.into_parts();
    if is_unasked {
        if let Some(refused) = gate.pass_unasked(&mut parts) {
            return Some(stop(refused));
        }
        return Some(State::Running {
            response: service.take()?.call(Request::from_parts(parts, body)),
            decided: None,
            answers: None,
            keeps: false,
        });
    }
    let decided = match gate.answers_at_once {
        true => at_once(gate.decide(&parts)),
        false => None,
    };
    let waiting: Waiting = match decided.map(|charged| gate.settle(&mut parts, charged)) {
        Some(Settled::Go(decided, answers)) => {
            return pass(gate, parts, body, decided, answers, service);
        }
        Some(Settled::Stop(response)) => return Some(stop(response)),
        Some(Settled::Queued(charged)) => Box::pin(Arc::clone(gate).queue(parts, charged)),
        None => Box::pin(Arc::clone(gate).admit(parts)),
    };
    Some(State::Waiting {
        admission: waiting,
        body: Some(body),
    })
}

fn go_on<S, B>(
    gate: &Gate,
    admission: Admission,
    body: B,
    service: &mut Option<S>,
) -> Option<State<S::Future, B>>
where
    S: Service<Request<B>>,
{
    match admission {
        Admission::Go(parts, decided, answers) => {
            pass(gate, parts, body, decided, answers, service)
        }
        Admission::Stop(response) => Some(stop(response)),
    }
}

fn pass<S, B>(
    gate: &Gate,
    mut parts: Parts,
    body: B,
    decided: Decided,
    answers: Option<Arc<Answers>>,
    service: &mut Option<S>,
) -> Option<State<S::Future, B>>
where
    S: Service<Request<B>>,
{
    let keeps = gate.keeps_decision_of(&parts);
    if gate.hands_on_decisions {
        parts.extensions.insert(decided.clone());
    }
    Some(State::Running {
        response: service.take()?.call(Request::from_parts(parts, body)),
        decided: Some(decided),
        answers,
        keeps,
    })
}

fn stop<F, B>(response: Response<Bytes>) -> State<F, B> {
    State::Answered {
        response: Some(response),
    }
}
