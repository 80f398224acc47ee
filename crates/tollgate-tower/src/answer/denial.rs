//! What there is to say about a denial, whoever says it.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use tollgate::{Decision, Source, Tier, Verdict};

use super::limit_headers::{retry_milliseconds, retry_seconds};
use super::problem;
use super::sheet::push_number;

/// Why a request does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A limit has no room for it now.
    QuotaExceeded,
    /// It costs more than a limit holds, so it never passes.
    NeverFits,
    /// It would have to wait in a queue for longer than it may.
    QueueTooLong,
    /// The store cannot be asked, and a rule lets nothing pass then.
    Closed,
}

/// A denial, and everything a response may want to say about it.
#[derive(Clone, Copy, Debug)]
pub struct Denial<'a> {
    decision: &'a Decision,
    verdict: Verdict,
    /// How long it may wait in a queue, if it was let in.
    patience: Option<Duration>,
    /// Of the request, if they are known.
    headers: Option<&'a HeaderMap>,
}

impl<'a> Denial<'a> {
    /// What to say about a decision; `None` if it let the request in.
    #[must_use]
    pub fn of(decision: &'a Decision) -> Option<Self> {
        (!decision.allowed()).then(|| Self {
            decision,
            verdict: decision.verdict(),
            patience: None,
            headers: None,
        })
    }

    /// What to say about a request that was let into a queue and must wait there for longer than it can. What it took is to be
    /// given back first, and the decision to have the figures after that ([`Decision::after_refund`]). `None` if it need not wait so long.
    #[must_use]
    pub fn of_delay(decision: &'a Decision, patience: Duration) -> Option<Self> {
        (decision.delay() > patience).then(|| Self {
            decision,
            verdict: decision.verdict(),
            patience: Some(patience),
            headers: None,
        })
    }

    /// The same, with the header fields of the request that is denied.
    #[must_use]
    pub fn with_request_headers(mut self, headers: &'a HeaderMap) -> Self {
        self.headers = Some(headers);
        self
    }

    /// The header fields of the request, if whoever denies it knows them. They are the caller's words: believe nothing, and escape it.
    #[must_use]
    pub fn request_headers(&self) -> Option<&'a HeaderMap> {
        self.headers
    }

    /// What was decided.
    pub fn decision(&self) -> &'a Decision {
        self.decision
    }

    /// Why it does not pass.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match (self.decision.source(), self.verdict) {
            (Source::Closed, _) => Reason::Closed,
            (_, Verdict::NeverFits) => Reason::NeverFits,
            (_, Verdict::Deny { .. }) => Reason::QuotaExceeded,
            _ => Reason::QueueTooLong,
        }
    }

    /// 503 if it is on us, else 429.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self.reason() {
            Reason::Closed => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    /// How long to wait before it is worth asking again, to the microsecond. `None` if waiting does not help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match (self.patience, self.verdict) {
            // Alone, it then waits just as long as it may.
            (Some(patience), Verdict::AllowAfter(delay)) => Some(delay.saturating_sub(patience)),
            (None, Verdict::Deny { retry_after }) => Some(retry_after),
            _ => None,
        }
    }

    /// The same in whole seconds, rounded up and never 0.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after().map(retry_seconds)
    }

    /// The same in whole milliseconds, rounded up and never 0.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.retry_after().map(retry_milliseconds)
    }

    /// The rules that did not let it pass, in their order.
    pub fn violated(&self) -> impl Iterator<Item = &'static str> {
        let denial = *self;
        let deciding = self
            .decision
            .tiers()
            .iter()
            .filter(|tier| !tier.is_shadow());
        let stops = move |tier: &&Tier| denial.is_stopped_by(tier.verdict());
        deciding.filter(stops).map(name)
    }

    /// Whether it does not pass where this is said of it.
    pub(super) fn is_stopped_by(&self, verdict: Verdict) -> bool {
        match (verdict, self.patience) {
            (Verdict::AllowAfter(delay), Some(patience)) => delay > patience,
            (verdict, _) => !verdict.allowed(),
        }
    }

    /// The body: problem details ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) as JSON.
    ///
    /// ```json
    /// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,
    ///  "detail":"A limit has no room for this request. Try again in 2 seconds.","violated-policies":["client"],"retry_after":2,"retry_after_ms":1250}
    /// ```
    #[must_use]
    pub fn problem_json(&self) -> String {
        problem::of_denial(self)
    }

    /// What happened, for people.
    #[must_use]
    pub fn detail(&self) -> String {
        let mut detail = String::with_capacity(96);
        self.push_detail(&mut detail);
        detail
    }

    /// Needs no escapes in JSON.
    pub(super) fn push_detail(&self, text: &mut String) {
        text.push_str(match self.reason() {
            Reason::QuotaExceeded => "A limit has no room for this request.",
            Reason::NeverFits => {
                "The request costs more than a limit holds: waiting does not help."
            }
            Reason::QueueTooLong => "The queue is longer than the request can wait.",
            Reason::Closed => "The service cannot check its limits at the moment.",
        });
        if self.reason() != Reason::NeverFits
            && let Some(seconds) = self.retry_after_seconds()
        {
            text.push_str(" Try again in ");
            push_number(seconds, text);
            text.push_str(if seconds == 1 {
                " second."
            } else {
                " seconds."
            });
        }
    }
}

/// What a tier is called in fields and bodies. A check by key has no rule to be called by.
pub(super) fn name(tier: &Tier) -> &'static str {
    match tier.rule().as_str() {
        "" => "default",
        name => name,
    }
}
