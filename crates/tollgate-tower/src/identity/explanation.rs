//! Why a caller was taken for who it is: what each source said. Never the secret that it said it with.

use std::fmt;

use super::caller::Caller;
use super::error::HeaderError;
use super::proxies::ProxyChain;
use super::source::{ClientSource, PlanSource};

/// Hears what became of each source. The usual way has nobody who listens, and pays nothing for it.
pub(crate) trait Observer {
    fn client(&mut self, _source: usize, _outcome: Outcome) {}
    fn plan(&mut self, _source: usize, _outcome: Outcome) {}
}

impl Observer for () {}

/// Writes it down.
pub(crate) struct Recorder {
    client: Vec<Step<ClientSource>>,
    plan: Vec<Step<PlanSource>>,
}

impl Recorder {
    pub(crate) fn new(client: &[ClientSource], plan: &[PlanSource]) -> Self {
        Self {
            client: client.iter().cloned().map(Step::not_tried).collect(),
            plan: plan.iter().cloned().map(Step::not_tried).collect(),
        }
    }

    pub(crate) fn explanation(
        self,
        caller: Caller,
        address: ProxyChain,
        refused: Option<HeaderError>,
    ) -> Explanation {
        Explanation {
            caller,
            refused,
            address,
            client: self.client,
            plan: self.plan,
        }
    }
}

impl Observer for Recorder {
    fn client(&mut self, source: usize, outcome: Outcome) {
        if let Some(step) = self.client.get_mut(source) {
            step.outcome = outcome;
        }
    }

    fn plan(&mut self, source: usize, outcome: Outcome) {
        if let Some(step) = self.plan.get_mut(source) {
            step.outcome = outcome;
        }
    }
}

/// Who calls, and why it was taken for that.
///
/// Shown, it is a few lines:
///
/// ```text
/// address: 203.0.113.7: the peer 10.0.0.1 is a trusted proxy; this is the first address from the right that is not trusted (hops read: 1)
/// client: ip:203.0.113.7, by its address
///   api_key:x-api-key: unknown API key
///   header:x-user-id: not present
///   ip: chosen
/// plan: none
///   header:x-plan: not present
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Who calls; by its address alone if the request is refused.
    pub caller: Caller,
    /// Why the request is refused, if it is.
    pub refused: Option<HeaderError>,
    /// How its address was found.
    pub address: ProxyChain,
    /// What each source of clients said, in order.
    pub client: Vec<Step<ClientSource>>,
    /// What each source of plans said, in order. A known client's plan comes before them.
    pub plan: Vec<Step<PlanSource>>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            caller,
            refused,
            address,
            client,
            plan,
        } = self;
        if let Some(error) = refused {
            writeln!(f, "refused: {error}")?;
        }
        writeln!(f, "address: {address}")?;
        match caller.client() {
            Some(name) => write!(f, "client: {name}, {}", caller.identified_by())?,
            None => write!(f, "client: none")?,
        }
        for step in client {
            write!(f, "\n  {step}")?;
        }
        let said = plan.iter().any(|step| step.outcome == Outcome::Chosen);
        match caller.plan() {
            Some(name) if said => write!(f, "\nplan: {name}")?,
            Some(name) => write!(f, "\nplan: {name}, that of the known client")?,
            None => write!(f, "\nplan: none")?,
        }
        for step in plan {
            write!(f, "\n  {step}")?;
        }
        Ok(())
    }
}

/// What became of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step<S> {
    /// Where it was looked.
    pub source: S,
    /// What was found there.
    pub outcome: Outcome,
}

impl<S> Step<S> {
    fn not_tried(source: S) -> Self {
        Self {
            source,
            outcome: Outcome::NotTried,
        }
    }
}

impl<S: fmt::Display> fmt::Display for Step<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.outcome)
    }
}

/// What was found at a source. Holds nothing of what a caller wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It says who calls, or by which plan.
    Chosen,
    /// One before it was chosen.
    NotTried,
    /// The header is not there.
    NotPresent,
    /// The header is there and says nothing.
    Empty,
    /// The header is there more than once, with different values.
    Ambiguous,
    /// The value is too long.
    TooLong,
    /// The value is not UTF-8, or holds characters that cannot be shown.
    Unreadable,
    /// `Authorization` by another scheme than Bearer.
    OtherScheme,
    /// `Authorization` with `Bearer`, and something else than a space behind it.
    Malformed,
    /// The value names no client as it stands, and holds a client's API key in another form: behind another scheme, in a list,
    /// or with further words. A server may read it where Tollgate does not.
    KeyInOtherForm,
    /// No client has this API key.
    UnknownApiKey,
    /// Trusted proxies are named, and the peer is none; so nobody vouches for what the header says.
    PeerNotTrusted,
    /// The id belongs to a client with an API key, and only who has the key is that client.
    HasApiKey,
    /// The name that the header and its value make is the id of a known client.
    NameTaken,
}

impl Outcome {
    /// Whether the header can be read in more than one way, so that the request is to be refused.
    #[must_use]
    pub fn is_refused(self) -> bool {
        matches!(
            self,
            Self::Ambiguous
                | Self::TooLong
                | Self::Unreadable
                | Self::Malformed
                | Self::KeyInOtherForm
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Chosen => "chosen",
            Self::NotTried => "not tried",
            Self::NotPresent => "not present",
            Self::Empty => "empty",
            Self::Ambiguous => "present more than once, with different values",
            Self::TooLong => "too long",
            Self::Unreadable => "not readable text",
            Self::OtherScheme => "not of the scheme Bearer",
            Self::Malformed => "malformed: Bearer is not followed by a space",
            Self::KeyInOtherForm => "holds an API key in a form that is not accepted",
            Self::UnknownApiKey => "unknown API key",
            Self::PeerNotTrusted => "not believed, as the peer is not a trusted proxy",
            Self::HasApiKey => "belongs to a client with an API key",
            Self::NameTaken => "makes a name that is the id of a known client",
        })
    }
}
