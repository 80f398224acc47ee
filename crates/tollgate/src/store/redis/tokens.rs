//! Many requests in one call of `tokens.lua`, or of `single.lua` if each has one token bucket.
//!
//! The script says whether a request passes and what it found; what that means for each tier is worked out here, by the same
//! arithmetic as in memory.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use smallvec::SmallVec;

use super::parcel::{Keys, MOST_SUBJECTS, Packed, Parcel, Reader, double, figures};
use crate::algorithm::{Level, State};
use crate::store::{Outcome, Taken};

/// Byte strings, each once, numbered from 1 on.
#[derive(Default)]
struct Numbered {
    all: Vec<u8>,
    numbers: HashMap<Vec<u8>, u16, foldhash::fast::RandomState>,
}

impl Numbered {
    fn number(&mut self, bytes: &[u8]) -> u16 {
        if let Some(number) = self.numbers.get(bytes) {
            return *number;
        }
        self.all.extend(bytes);
        let number = self.count() + 1;
        self.numbers.insert(bytes.to_owned(), number);
        number
    }

    /// 64 requests of 8 tiers have fewer than 65,536.
    fn count(&self) -> u16 {
        u16::try_from(self.numbers.len()).unwrap_or(u16::MAX)
    }
}

/// What a call of `tokens.lua` carries.
pub(super) fn manifest<'a>(
    parcels: impl Iterator<Item = &'a Parcel> + Clone,
) -> (Vec<Cow<'a, str>>, Vec<u8>) {
    let mut keys = Keys::default();
    let met_again = number_those_met_again(&mut keys, parcels.clone());
    let (mut limits, mut shapes) = (Numbered::default(), Numbered::default());
    let (mut requests, mut shape) = (Vec::new(), Vec::new());
    for parcel in parcels {
        shape.clear();
        shape.push(u8::try_from(parcel.charges.len()).unwrap_or(u8::MAX));
        let mut subjects = [0; MOST_SUBJECTS as usize];
        for charge in &parcel.charges {
            let (_, numbers) = figures(&charge.limit);
            let limit = limits.number(numbers.map(double).as_flattened());
            shape.push(charge.slot);
            shape.extend(limit.to_le_bytes());
            shape.push(u8::from(charge.shadow));
            shape.extend(charge.address.id);
            shape.extend(double(charge.cost));
            let subject = &mut subjects[usize::from(charge.slot - 1)];
            if *subject == 0 {
                *subject = keys.number(charge.address.key.as_str());
            }
        }
        requests.extend(shapes.number(&shape).to_le_bytes());
        for subject in subjects {
            requests.extend(subject.to_le_bytes());
        }
    }
    let mut blob = Vec::with_capacity(6 + limits.all.len() + shapes.all.len() + requests.len());
    blob.extend(met_again.to_le_bytes());
    for numbered in [&limits, &shapes] {
        blob.extend(numbered.count().to_le_bytes());
        blob.extend(&numbered.all);
    }
    blob.extend(requests);
    (keys.keys, blob)
}

/// Gives the first numbers to the subjects that several requests meet, and says how many there are.
fn number_those_met_again<'a>(
    keys: &mut Keys<'a>,
    parcels: impl Iterator<Item = &'a Parcel>,
) -> u16 {
    let mut met: HashSet<&str, foldhash::fast::RandomState> = HashSet::default();
    let mut last = 0;
    for parcel in parcels {
        for (i, charge) in parcel.charges.iter().enumerate() {
            let is_next = i == 0 || parcel.charges[i - 1].slot != charge.slot;
            if is_next && !met.insert(charge.address.key.as_str()) {
                last = last.max(keys.number(charge.address.key.as_str()));
            }
        }
    }
    last
}

/// The answer to one, of `single.lua` as well.
pub(super) fn read_reply(reader: &mut Reader<'_>, parcel: &Parcel, at_us: u64) -> Option<Taken> {
    let admitted = reader.byte()? == 1;
    let mut taken = Taken {
        admitted,
        at_us,
        outcomes: smallvec::smallvec![Outcome::NONE; parcel.charges.len()],
    };
    // All are read, so that the next answer begins where it does.
    let mut level = || (reader.number(), reader.number());
    let levels: SmallVec<[_; 4]> = parcel.charges.iter().map(|_| level()).collect();
    let mut passes = true;
    for (charge, (level_at_us, used_utok)) in parcel.charges.iter().zip(levels) {
        let mut state = State::Level(Level {
            at_us: level_at_us?,
            used_utok: used_utok?,
        });
        let look = (charge.limit).take(&mut state, at_us, charge.cost, admitted);
        passes &= charge.shadow || look.fit.admits();
        taken.outcomes[charge.nth] = Outcome {
            fit: look.fit,
            remaining: look.remaining,
            full_at_us: look.empty_at_us.max(at_us),
            at_us,
            charged: look.charged,
            shared: false,
        };
    }
    // By the same arithmetic, it must come out the same.
    (passes == admitted).then_some(taken)
}

/// Up to so many go this way also if most ask for one subject. For more it is better if that is read and written once, as `tokens.lua`
/// does: 14,000 instructions each instead of 19,000, and 27,000 for those who ask for others.
const FEW: usize = 8;

/// What a call of `single.lua` carries, if it can be one.
pub(super) fn single_manifest<'a>(
    parcels: impl ExactSizeIterator<Item = &'a Parcel>,
) -> Option<(Vec<&'a str>, Vec<u8>)> {
    let mut twins = 0;
    let mut keys: Vec<&str> = Vec::with_capacity(parcels.len());
    let (mut blob, mut last, mut count) = (Vec::new(), None, 0_u16);
    for parcel in parcels {
        let [charge] = parcel.charges.as_slice() else {
            return None;
        };
        let key = charge.address.key.as_str();
        // Where many ask for one subject, neighbours do.
        twins += usize::from(keys.last() == Some(&key));
        keys.push(key);
        let shape = shape(charge);
        if last != Some(shape) {
            finish_row(&mut blob, last, count);
            (last, count) = (Some(shape), 0);
        }
        count += 1;
    }
    finish_row(&mut blob, last, count);
    let is_crowd = keys.len() > FEW && 2 * twins > keys.len();
    (!is_crowd).then_some((keys, blob))
}

/// What requests in a row are alike in.
type Shape = (bool, [[u8; 8]; 5]);

fn shape(charge: &Packed) -> Shape {
    let (_, figures) = figures(&charge.limit);
    let [x, y, z] = figures.map(double);
    (
        charge.shadow,
        [x, y, z, charge.address.id, double(charge.cost)],
    )
}

fn finish_row(blob: &mut Vec<u8>, shape: Option<Shape>, count: u16) {
    if let Some((shadow, numbers)) = shape {
        blob.extend(count.to_le_bytes());
        blob.push(u8::from(shadow));
        blob.extend(numbers.as_flattened());
    }
}
