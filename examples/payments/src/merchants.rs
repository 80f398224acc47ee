//! Who calls, with which plan, how often, and for what.

use std::time::Duration;

use hyper::Method;

/// A merchant.
#[derive(Clone, Copy, Debug)]
pub struct Merchant {
    /// Its id, and what its API key begins with.
    pub id: &'static str,
    /// Its plan, if it is no ordinary one.
    pub plan: Option<&'static str>,
    /// What it asks for, by the second.
    pub per_second: u32,
    /// When it asks.
    pub habit: Habit,
}

/// When a merchant calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// All the time.
    Steady,
    /// All the time, once the flood has begun.
    Flood,
    /// Only around the boundary of the minute: a job that was scheduled for `0 * * * *`.
    Batch,
}

/// Something that merchants ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// To take money.
    Charge,
    /// To look at a charge.
    Look,
    /// To give money back.
    Refund,
}

/// How long before and after a boundary the batch job runs.
pub const BATCH_AROUND: Duration = Duration::from_secs(2);

/// The sandbox that floods.
pub const SANDBOX: &str = "sandbox-test";
/// The merchant that must not be hurt.
pub const ENTERPRISE: &str = "enterprise-mart";

/// All of them.
pub const MERCHANTS: [Merchant; 6] = [
    merchant(ENTERPRISE, Some("enterprise"), 150, Habit::Steady),
    merchant(SANDBOX, Some("sandbox"), 1_000, Habit::Flood),
    merchant("books-and-more", None, 20, Habit::Steady),
    merchant("corner-cafe", None, 20, Habit::Steady),
    // Asks for more than ordinary merchants get.
    merchant("flower-power", None, 60, Habit::Steady),
    merchant("gym-batch", None, 250, Habit::Batch),
];

const fn merchant(
    id: &'static str,
    plan: Option<&'static str>,
    per_second: u32,
    habit: Habit,
) -> Merchant {
    Merchant {
        id,
        plan,
        per_second,
        habit,
    }
}

impl Merchant {
    /// Its API key: as secret as a rehearsal's may be.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}-rehearsal-key", self.id)
    }
}

impl Endpoint {
    /// Four charges, then a look; every twentieth request is a refund.
    #[must_use]
    pub fn of_request(number: u64) -> Self {
        match number {
            n if n % 20 == 19 => Self::Refund,
            n if n % 5 == 4 => Self::Look,
            _ => Self::Charge,
        }
    }

    /// As it is asked for.
    #[must_use]
    pub fn request(self) -> (Method, &'static str) {
        match self {
            Self::Charge => (Method::POST, "/v1/charges"),
            Self::Look => (Method::GET, "/v1/charges/ch_1"),
            Self::Refund => (Method::POST, "/v1/refunds"),
        }
    }

    /// As the processor hears it.
    #[must_use]
    pub fn read(method: &Method, path: &str) -> Option<Self> {
        [Self::Charge, Self::Look, Self::Refund]
            .into_iter()
            .find(|endpoint| endpoint.request() == (method.clone(), path))
    }
}
