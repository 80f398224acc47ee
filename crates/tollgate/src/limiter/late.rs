//! Replies that arrive after their checks were decided without them.
//!
//! Such a reply is still valid: a denial in it is remembered, and what it charged to a request that was denied meanwhile is given back,
//! so that a denied request charges nothing. What it charged to a request that was admitted meanwhile stays charged.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::denials::Denials;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::store::{Address, Charge, LateReplies, RedisStore, Taken};

/// A request whose deadline passed before the store replied.
pub(super) struct LateRequest {
    replies: LateReplies,
    charges: SmallVec<[LateCharge; 4]>,
    was_admitted: bool,
    sent: Instant,
}

/// A charge that outlives its request.
struct LateCharge {
    denial_key: u64,
    address: Address,
    limit: Limit,
    cost: u64,
    shadow: bool,
}

impl LateRequest {
    pub(super) fn new(
        replies: LateReplies,
        charges: &[Charge<'_>],
        decision: &Decision,
        sent: Instant,
        (store, denials): (&RedisStore, &Denials),
    ) -> Self {
        let outlive = |charge: &Charge<'_>| LateCharge {
            denial_key: denials.key(&charge.bucket),
            address: store.address(&charge.bucket),
            limit: *charge.limit,
            cost: charge.cost,
            shadow: charge.shadow,
        };
        Self {
            replies,
            charges: charges.iter().map(outlive).collect(),
            // A delayed request may still be denied, or leave its queue.
            was_admitted: decision.allowed() && decision.delay().is_zero(),
            sent,
        }
    }

    /// Waits for the replies and uses them.
    pub(super) async fn settle(self, store: RedisStore, denials: Arc<Denials>) {
        for (members, reply) in self.replies {
            let charges = || members.iter().map(|nth| &self.charges[*nth]);
            match reply.await {
                Ok(Ok(taken)) if !taken.admitted => {
                    note(&denials, charges(), &taken, self.sent);
                }
                Ok(Ok(taken)) if !self.was_admitted => {
                    give_back(&store, &denials, charges(), &taken).await;
                }
                // It was charged and has passed, or was never carried out.
                _ => {}
            }
        }
    }
}

fn note<'a>(
    denials: &Denials,
    charges: impl Iterator<Item = &'a LateCharge>,
    taken: &Taken,
    sent: Instant,
) {
    for (charge, outcome) in charges.zip(&taken.outcomes) {
        if !charge.shadow {
            denials.note_one(charge.denial_key, &charge.limit, charge.cost, outcome, sent);
        }
    }
}

async fn give_back<'a>(
    store: &RedisStore,
    denials: &Denials,
    charges: impl Iterator<Item = &'a LateCharge>,
    taken: &Taken,
) {
    for (charge, outcome) in charges.zip(&taken.outcomes) {
        if !outcome.charged {
            continue;
        }
        let address = charge.address.clone();
        let refund = store.refund_at(address, &charge.limit, charge.cost, outcome.at_us);
        if let Err(error) = refund.await {
            tracing::debug!(%error, "a denied request stays charged: its charge could not be given back");
        }
        denials.forget_key(charge.denial_key);
    }
}
