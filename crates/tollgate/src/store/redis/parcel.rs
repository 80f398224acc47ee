//! A request as it is sent, and many of them in one call of `take.lua`.

use std::borrow::Cow;
use std::collections::HashMap;

use smallvec::SmallVec;

use super::error::RedisError;
use super::key::Address;
use crate::algorithm::Fit;
use crate::limit::{Algorithm, Kind, Limit};
use crate::store::{Charge, Outcome, Taken};

/// A request as it is sent.
#[derive(Debug)]
pub(super) struct Parcel {
    /// In the order in which they are looked at, which is not always theirs: see [`Packed::nth`].
    pub(super) charges: Vec<Packed>,
    pub(super) way: Way,
}

/// Which script a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `tokens.lua`, or `single.lua` if all who go together have one tier: takes from a few token buckets, which is what most
    /// requests are.
    Tokens,
    /// `take.lua`: takes from any.
    Take,
    /// `take.lua`: only looks.
    Look,
}

#[derive(Debug)]
pub(super) struct Packed {
    /// Which of the request's charges.
    pub(super) nth: usize,
    /// Which of the request's subjects, from 1 on.
    pub(super) slot: u8,
    pub(super) address: Address,
    pub(super) limit: Limit,
    pub(super) cost: u64,
    pub(super) shadow: bool,
}

/// The most tiers and subjects of a request that `tokens.lua` takes.
const MOST_TOKEN_BUCKETS: usize = 8;
pub(super) const MOST_SUBJECTS: u8 = 4;

/// More than any limit holds, and few enough for doubles: sums of 255 of them are still exact.
const MOST_COST: u64 = 1 << 40;

impl Parcel {
    /// These charges, each with its address.
    pub(super) fn new<'a>(
        charges: impl ExactSizeIterator<Item = (&'a Charge<'a>, Address)>,
        charging: bool,
    ) -> Result<Self, RedisError> {
        if charges.len() > usize::from(u8::MAX) {
            return Err(RedisError::TooMany);
        }
        let mut packed: Vec<Packed> = Vec::with_capacity(charges.len());
        let mut subjects = 0;
        for (nth, (charge, address)) in charges.enumerate() {
            let known = packed.iter().find(|p| p.address.key == address.key);
            let slot = known.map_or(subjects + 1, |known| known.slot);
            subjects = subjects.max(slot);
            packed.push(Packed {
                nth,
                slot,
                address,
                limit: *charge.limit,
                cost: charge.cost.min(MOST_COST),
                shadow: charge.shadow,
            });
        }
        let way = match charging {
            false => Way::Look,
            true if subjects <= MOST_SUBJECTS && are_token_buckets(&packed) => {
                // Those of one subject side by side.
                packed.sort_by_key(|charge| charge.slot);
                Way::Tokens
            }
            true => Way::Take,
        };
        Ok(Self {
            charges: packed,
            way,
        })
    }
}

/// Whether these are a few token buckets, each by itself.
fn are_token_buckets(charges: &[Packed]) -> bool {
    let is_first = |(i, charge): (usize, &Packed)| {
        charge.limit.as_token_bucket().is_some()
            && charges[..i].iter().all(|p| p.address != charge.address)
    };
    (1..=MOST_TOKEN_BUCKETS).contains(&charges.len()) && charges.iter().enumerate().all(is_first)
}

/// A limit as the scripts take it.
pub(super) fn figures(limit: &Limit) -> (u8, [u64; 3]) {
    match limit.kind() {
        Kind::TokenBucket(bucket) => {
            let rate = bucket.rate();
            (0, [rate.drain_utok(), rate.drain_us(), bucket.capacity()])
        }
        Kind::LeakyBucket(bucket) => {
            let rate = bucket.rate();
            (1, [rate.drain_utok(), rate.drain_us(), bucket.capacity()])
        }
        Kind::FixedWindow(window) => (2, [window.limit(), window.window_us(), 0]),
        Kind::SlidingLog(log) => (3, [log.limit(), log.window_us(), 0]),
        Kind::SlidingCounter(counter) => (4, [counter.limit(), counter.window_us(), 0]),
    }
}

/// A whole number below 2^53 as the scripts read it.
#[expect(clippy::cast_precision_loss, reason = "all of them are below 2^53")]
pub(super) fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

/// What a refund sends.
pub(super) fn refund(limit: &Limit, id: [u8; 8], cost: u64, charged_at_us: u64) -> Vec<u8> {
    let (kind, [x, y, z]) = figures(limit);
    let mut blob = vec![kind, 0];
    blob.extend(id);
    for number in [cost.min(MOST_COST), x, y, z, charged_at_us] {
        blob.extend(double(number));
    }
    blob
}

/// The keys of one call, each once.
#[derive(Default)]
pub(super) struct Keys<'a> {
    pub(super) keys: Vec<Cow<'a, str>>,
    numbers: HashMap<Cow<'a, str>, u16, foldhash::fast::RandomState>,
}

impl<'a> Keys<'a> {
    /// A key's number, from 1 on. 64 requests of 255 buckets and logs are fewer than 65,536.
    pub(super) fn number(&mut self, key: impl Into<Cow<'a, str>>) -> u16 {
        let key = key.into();
        let next = u16::try_from(self.keys.len() + 1).unwrap_or(u16::MAX);
        *self.numbers.entry(key).or_insert_with_key(|key| {
            self.keys.push(key.clone());
            next
        })
    }
}

/// What a call of `take.lua` carries.
pub(super) fn manifest<'a>(
    parcels: impl Iterator<Item = &'a Parcel>,
) -> (Vec<Cow<'a, str>>, Vec<u8>) {
    let (mut keys, mut blob) = (Keys::default(), Vec::new());
    for parcel in parcels {
        blob.push(u8::try_from(parcel.charges.len()).unwrap_or(u8::MAX));
        for charge in &parcel.charges {
            let key = keys.number(charge.address.key.as_str());
            let log_key = match charge.limit.algorithm() {
                Algorithm::SlidingLog => keys.number(charge.address.log_key()),
                _ => 0,
            };
            let (kind, [x, y, z]) = figures(&charge.limit);
            blob.extend(key.to_le_bytes());
            blob.extend(log_key.to_le_bytes());
            blob.extend([kind, u8::from(charge.shadow)]);
            blob.extend(charge.address.id);
            for number in [charge.cost, x, y, z] {
                blob.extend(double(number));
            }
        }
    }
    (keys.keys, blob)
}

/// What a script answered to these, each read by `read`, which must read as much whatever it makes of it: one bucket that makes no sense says nothing
/// about the others. `None` if it is no such answer at all.
pub(super) fn read_replies<'a>(
    reply: &[u8],
    parcels: impl Iterator<Item = &'a Parcel>,
    read: impl Fn(&mut Reader<'_>, &Parcel, u64) -> Option<Taken>,
) -> Option<Vec<Option<Taken>>> {
    let mut reader = Reader(reply);
    let at_us = reader.number()?;
    let taken = parcels
        .map(|parcel| read(&mut reader, parcel, at_us))
        .collect();
    reader.is_empty().then_some(taken)
}

/// The answer of `take.lua` to one.
pub(super) fn read_reply(reader: &mut Reader<'_>, parcel: &Parcel, at_us: u64) -> Option<Taken> {
    let admitted = reader.byte()? == 1;
    // All are read, so that the next answer begins where it does.
    let outcomes: SmallVec<[Option<Outcome>; 4]> = (parcel.charges.iter())
        .map(|_| reader.outcome(at_us))
        .collect();
    let outcomes: Option<_> = outcomes.into_iter().collect();
    Some(Taken {
        admitted,
        at_us,
        outcomes: outcomes?,
    })
}

/// Reads what scripts answer.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.0.split_off_first().copied()
    }

    pub(super) fn bytes(&mut self) -> Option<[u8; 8]> {
        self.0.split_off(..8)?.try_into().ok()
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be whole and in range"
    )]
    pub(super) fn number(&mut self) -> Option<u64> {
        let number = f64::from_le_bytes(self.bytes()?);
        let is_whole = (0.0..9_007_199_254_740_992.0).contains(&number) && number.fract() == 0.0;
        is_whole.then_some(number as u64)
    }

    fn outcome(&mut self, at_us: u64) -> Option<Outcome> {
        let (fit, charged) = (self.byte()?, self.byte()? == 1);
        let [time_us, remaining, full_at_us] = [self.number(), self.number(), self.number()];
        let time_us = time_us?;
        Some(Outcome {
            fit: match fit {
                0 => Fit::Now,
                1 => Fit::Queued { go_at_us: time_us },
                2 => Fit::Later {
                    ready_at_us: time_us,
                },
                3 => Fit::Never,
                _ => return None,
            },
            remaining: remaining?,
            full_at_us: full_at_us?,
            at_us,
            charged,
            shared: false,
        })
    }
}
