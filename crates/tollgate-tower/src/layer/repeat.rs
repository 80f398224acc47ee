//! A request that was denied and comes again in the same words: it is decided on anew, and nothing of it is read anew.
//!
//! For servers that see the bytes of requests. Who is denied and asks on and on mostly asks for the same on the same connection, and is to cost little.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use http::StatusCode;
use tollgate::Decision;

use super::decided::Decided;
use super::gate::{Gate, Who};
use crate::answer::{Denial, FieldLines};
use crate::policy::{Policy, Target};

/// Among a request's extensions: if it is denied, its response is to carry a [`Repeat`], if the answer is the usual one.
#[derive(Clone, Copy, Debug)]
pub struct WantRepeat;

/// Among the extensions of a response that denied a request: decides about the same request when it comes again.
///
/// The same is what has the same head, byte for byte, and comes on the same connection, as who calls is not looked at again. Whoever stands in front of the layer
/// is not asked, so the layer is to be the first that decides.
#[derive(Clone)]
pub struct Repeat(Arc<Question>);

struct Question {
    gate: Arc<Gate>,
    /// By another one it is another question. Not held, so that who keeps a question keeps no old policy.
    policy: Weak<Policy>,
    who: Who,
    target: Target<'static>,
}

/// What comes of a request that comes again.
#[derive(Debug)]
#[must_use = "a request that is let in is charged"]
pub enum Repeated {
    /// It is denied again.
    Denied,
    /// It is let in, and charged: its request is to go the usual way with this among its extensions.
    Admitted(Admitted),
    /// It is to go the usual way: nothing was decided.
    Unknown,
}

/// A denial, and the answer to it.
#[derive(Debug)]
pub struct DeniedAgain<'a> {
    denial: Denial<'a>,
    answer: &'a FieldLines,
}

/// Among a request's extensions: it was decided on already, and by whom. Good for one request.
#[derive(Clone)]
pub struct Admitted(Arc<Ticket>);

struct Ticket {
    gate: Arc<Gate>,
    policy: Arc<Policy>,
    decision: Decision,
    is_used: AtomicBool,
}

impl Repeat {
    /// `None` if the answer is another one each time, or whoever asks is told by others.
    pub(super) fn of(
        gate: &Arc<Gate>,
        policy: &Arc<Policy>,
        who: Who,
        target: Target<'_>,
    ) -> Option<Self> {
        let is_told = gate.ask.is_some() || gate.cost.is_some();
        let is_usual = gate.answers_by(policy).is_usual();
        (is_usual && !is_told).then(|| {
            Self(Arc::new(Question {
                gate: Arc::clone(gate),
                policy: Arc::downgrade(policy),
                who,
                target: target.into_owned(),
            }))
        })
    }

    /// Decides about it, and tells whoever is told of decisions. `answer` is called if it is denied.
    pub fn ask(&self, answer: impl FnOnce(&DeniedAgain<'_>)) -> Repeated {
        let Question {
            gate,
            policy,
            who,
            target,
        } = &*self.0;
        let current = gate.policies.policy();
        // What is held weakly keeps its place in memory, so no other policy can be there.
        if policy.as_ptr() != Arc::as_ptr(&current) {
            return Repeated::Unknown;
        }
        let request = who.asks_for(target, None);
        let met = current.rules().meet(&request);
        let Some(decision) = gate.limiter.decide_at_once(&met) else {
            return Repeated::Unknown;
        };
        gate.tell_of(&met, &decision);
        if let Some(denial) = Denial::of(&decision) {
            let answers = gate.answers_by(&current);
            answers.usual(&denial, |usual| {
                answer(&DeniedAgain {
                    denial,
                    answer: usual,
                });
            });
            return Repeated::Denied;
        }
        Repeated::Admitted(Admitted(Arc::new(Ticket {
            gate: Arc::clone(gate),
            policy: Arc::clone(&current),
            decision,
            is_used: AtomicBool::new(false),
        })))
    }
}

impl DeniedAgain<'_> {
    /// That of the answer.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.denial.status()
    }

    /// The answer's body: problem details as JSON.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.answer.before()
    }

    /// All that is said of the decision, as lines of a head of HTTP/1.1.
    #[must_use]
    pub fn lines(&self) -> &[u8] {
        self.answer.as_bytes()
    }

    /// What was decided.
    #[must_use]
    pub fn decided(&self) -> Decided {
        Decided::new(self.denial.decision().clone())
    }
}

impl Admitted {
    /// What this gate decided, and by what, if it was this one and nobody came in by it yet.
    pub(super) fn by(&self, gate: &Gate) -> Option<(&Arc<Policy>, &Decision)> {
        let ticket = &*self.0;
        let is_ours = std::ptr::eq(Arc::as_ptr(&ticket.gate), gate);
        let is_good = is_ours && !ticket.is_used.swap(true, Relaxed);
        is_good.then_some((&ticket.policy, &ticket.decision))
    }
}

impl fmt::Debug for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repeat")
            .field("target", &self.0.target)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admitted").field(&self.0.decision).finish()
    }
}
