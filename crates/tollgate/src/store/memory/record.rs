//! What is known of one bucket, in 16 bytes.

use crate::algorithm::{Counter, Level, MAX_COUNT, State, Window};

/// A stamp and one word of state. The blank one says that nothing was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    stamp: Stamp,
    word: u64,
}

/// Far longer than it takes to come back and charge.
const RESERVED_US: u64 = 10_000;

/// Set in the word if more than half of the limit was used after the last charge. Levels stay below 2^53, windows and indices below
/// 2^32.
const HEAVY: u64 = 1 << 63;

/// A counter has no bit to spare. One that is not heavy is kept higher by this, above all that can be counted.
const LIGHT_COUNT: u32 = MAX_COUNT + 1;

/// What a record holds: the state itself, or where the log lies.
pub(super) enum Content {
    State(State),
    Log { index: u32 },
}

impl Record {
    pub(super) fn from_words([stamp, word]: [u64; 2]) -> Self {
        Self {
            stamp: Stamp(stamp),
            word,
        }
    }

    pub(super) fn to_words(self) -> [u64; 2] {
        [self.stamp.0, self.word]
    }

    /// Of a key that is about to be charged: nothing is used, but it is not to be forgotten in the meantime.
    pub(super) fn reserved(now_us: u64) -> Self {
        let mut record = Self::default();
        let level = Level {
            at_us: now_us,
            used_utok: 0,
        };
        record.write_level(level, now_us + RESERVED_US, false);
        record
    }

    /// Nothing is used, and it may be forgotten at once. The mark stays, as time must not go back as long as it is here.
    pub(super) fn spent(self) -> Self {
        let mut record = Self::default();
        let level = Level {
            at_us: self.at_us(),
            used_utok: 0,
        };
        record.write_level(level, 0, false);
        record
    }

    /// Whether it is a level with nothing in it.
    #[inline]
    pub(super) fn is_unused(&self) -> bool {
        self.word << 1 == 0 && self.stamp.form() == Form::Level
    }

    fn is_blank(&self) -> bool {
        *self == Self::default()
    }

    /// When it was true.
    #[inline]
    pub(super) fn at_us(&self) -> u64 {
        self.stamp.at_us()
    }

    /// From when on it says nothing and can be forgotten.
    pub(super) fn expires_at_us(&self) -> u64 {
        self.stamp.expires_at_us()
    }

    #[inline]
    pub(super) fn content(&self) -> Content {
        let (at_us, word) = (self.stamp.at_us(), self.word & !HEAVY);
        Content::State(match self.stamp.form() {
            Form::Level => State::Level(Level {
                at_us,
                used_utok: word,
            }),
            Form::Window => State::Window(Window { at_us, used: word }),
            Form::Counter => State::Counter(Counter {
                at_us,
                current: light_or_heavy_count(low(self.word)).0,
                previous: low(self.word >> 32),
            }),
            Form::Log => return Content::Log { index: low(word) },
        })
    }

    /// The level of a token or leaky bucket, if that is what it holds.
    #[inline]
    pub(super) fn level(&self) -> Option<Level> {
        (self.stamp.form() == Form::Level).then_some(Level {
            at_us: self.stamp.at_us(),
            used_utok: self.word & !HEAVY,
        })
    }

    #[inline]
    pub(super) fn write_level(&mut self, level: Level, empty_at_us: u64, is_heavy: bool) {
        self.stamp = Stamp::new(level.at_us, Form::Level, empty_at_us);
        self.word = level.used_utok | heavy(is_heavy);
    }

    /// Whether more than half of the limit was used after the last charge.
    pub(super) fn is_heavy(&self) -> bool {
        match self.stamp.form() {
            Form::Counter => light_or_heavy_count(low(self.word)).1,
            _ => self.word & HEAVY != 0,
        }
    }

    /// Whether it may be forgotten for another key: something was used, and at most half of the limit counts now.
    pub(super) fn is_evictable(&self, now_us: u64) -> bool {
        if self.is_unused() {
            // It was reserved just now, or will be swept.
            return false;
        }
        // A level drains evenly, so when half of its time has passed at most half of the limit is left.
        let has_drained = || {
            let elapsed_us = now_us.saturating_sub(self.at_us());
            self.stamp.form() == Form::Level
                && elapsed_us >= self.expires_at_us().saturating_sub(now_us)
        };
        !self.is_heavy() || has_drained()
    }

    /// Sees to it that it is not forgotten before this time; says whether it would have been.
    #[inline]
    pub(super) fn keep_until(&mut self, empty_at_us: u64) -> bool {
        let is_longer = !self.is_blank() && empty_at_us > self.stamp.expires_at_us();
        if is_longer {
            self.stamp = Stamp::new(self.stamp.at_us(), self.stamp.form(), empty_at_us);
        }
        is_longer
    }

    /// Where the log lies, if there is one.
    #[inline]
    pub(super) fn log_index(&self) -> Option<u32> {
        (self.stamp.form() == Form::Log).then_some(low(self.word))
    }

    /// Writes a state that says nothing from `empty_at_us` on. For a log this is [`write_log`](Self::write_log).
    #[inline]
    pub(super) fn write(&mut self, state: &State, empty_at_us: u64, is_heavy: bool) {
        let (form, word) = match state {
            State::Level(level) => return self.write_level(*level, empty_at_us, is_heavy),
            State::Window(window) => (Form::Window, window.used | heavy(is_heavy)),
            State::Counter(counter) => {
                let light = (counter.current).checked_add(LIGHT_COUNT);
                // What is too high for that counts as heavy.
                let current = light.filter(|_| !is_heavy).unwrap_or(counter.current);
                (
                    Form::Counter,
                    u64::from(current) | (u64::from(counter.previous) << 32),
                )
            }
            State::Log(_) => return,
        };
        self.stamp = Stamp::new(state.at_us(), form, empty_at_us);
        self.word = word;
    }

    pub(super) fn write_log(&mut self, index: u32, at_us: u64, empty_at_us: u64, is_heavy: bool) {
        self.stamp = Stamp::new(at_us, Form::Log, empty_at_us);
        self.word = u64::from(index) | heavy(is_heavy);
    }
}

fn heavy(is_heavy: bool) -> u64 {
    u64::from(is_heavy) << 63
}

/// What was counted, and whether that is heavy.
fn light_or_heavy_count(kept: u32) -> (u32, bool) {
    match kept.checked_sub(LIGHT_COUNT) {
        Some(count) => (count, false),
        None => (kept, true),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
fn low(word: u64) -> u32 {
    word as u32
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Level,
    Window,
    Counter,
    Log,
}

/// When the state was true, its form, and until when it matters.
///
/// 52 bits of time, 2 of form, and 10 for the span until it says nothing: a small float (6 bits of exponent, 4 of
/// mantissa) that is rounded up, so that nothing is forgotten too early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp(u64);

const TIME_BITS: u32 = 52;
const SPAN_SHIFT: u32 = TIME_BITS + 2;
const MANTISSA_BITS: u32 = 4;

impl Stamp {
    fn new(at_us: u64, form: Form, empty_at_us: u64) -> Self {
        debug_assert!(at_us <= 1 << TIME_BITS);
        let at_us = at_us.min((1 << TIME_BITS) - 1);
        let span = span_to_bits(empty_at_us.saturating_sub(at_us));
        Self(at_us | (form as u64) << TIME_BITS | span << SPAN_SHIFT)
    }

    fn at_us(self) -> u64 {
        self.0 & ((1 << TIME_BITS) - 1)
    }

    fn form(self) -> Form {
        match self.0 >> TIME_BITS & 3 {
            0 => Form::Level,
            1 => Form::Window,
            2 => Form::Counter,
            _ => Form::Log,
        }
    }

    /// From when on the record says nothing.
    fn expires_at_us(self) -> u64 {
        self.at_us()
            .saturating_add(span_from_bits(self.0 >> SPAN_SHIFT))
    }
}

/// The smallest span in the small float that is at least `us`.
fn span_to_bits(us: u64) -> u64 {
    const ONE: u64 = 1 << MANTISSA_BITS;
    if us < ONE {
        return us;
    }
    let shift = u64::from(us.ilog2() - MANTISSA_BITS);
    // Rounding up may carry into the exponent, which is just right.
    let mantissa = us.div_ceil(1 << shift) - ONE;
    (shift + 1) * ONE + mantissa
}

fn span_from_bits(bits: u64) -> u64 {
    const ONE: u64 = 1 << MANTISSA_BITS;
    let (exponent, mantissa) = (bits / ONE, bits % ONE);
    match exponent {
        0 => mantissa,
        _ => (ONE + mantissa) << (exponent - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_rounded_up_by_less_than_a_sixteenth() {
        let mut us = 0_u64;
        while us < 1 << 53 {
            for us in [us.saturating_sub(1), us, us + 1] {
                let kept = span_from_bits(span_to_bits(us));
                assert!(kept >= us && kept - us <= us / 16, "{us} became {kept}");
                assert!(span_to_bits(us) < 1 << 10, "{us} needs more than 10 bits");
            }
            us = us * 17 / 16 + 1;
        }
    }

    #[test]
    fn a_heavy_level_is_evictable_once_half_of_it_has_drained() {
        // A span that is kept without rounding.
        let (at_us, span_us) = (1_000_000_000, 20 << 15);
        let mut record = Record::default();
        assert!(!record.is_evictable(at_us), "nothing was used");
        let level = Level {
            at_us,
            used_utok: 8,
        };
        record.write_level(level, at_us + span_us, false);
        assert!(record.is_evictable(at_us));
        record.write_level(level, at_us + span_us, true);
        assert!(!record.is_evictable(at_us + span_us / 2 - 1));
        assert!(record.is_evictable(at_us + span_us / 2));
        let window = State::Window(Window { at_us, used: 8 });
        record.write(&window, at_us + span_us, true);
        assert!(!record.is_evictable(at_us + span_us - 1));
    }

    #[test]
    fn every_form_comes_back_as_it_went_in() {
        let at_us = (1 << TIME_BITS) - 1;
        let mut record = Record::default();
        for state in [
            State::Level(Level {
                at_us,
                used_utok: 8_000_000_000_000_000,
            }),
            State::Window(Window { at_us, used: 9 }),
            State::Counter(Counter {
                at_us,
                current: MAX_COUNT,
                previous: MAX_COUNT,
            }),
            State::Counter(Counter {
                at_us,
                current: 7,
                previous: 1,
            }),
        ]
        .into_iter()
        .flat_map(|state| [(state.clone(), false), (state, true)])
        {
            let (state, is_heavy) = state;
            record.write(&state, at_us + 1_000, is_heavy);
            let is_full = matches!(&state, State::Counter(counter) if counter.current > 7);
            assert_eq!(record.is_heavy(), is_heavy || is_full);
            assert_eq!(record.stamp.at_us(), at_us);
            assert!(record.stamp.expires_at_us() >= at_us + 1_000);
            let read = Record::from_words(record.to_words());
            assert!(matches!(read.content(), Content::State(read) if read == state));
            assert_eq!(record.log_index(), None);
        }
        for is_heavy in [false, true] {
            record.write_log(u32::MAX, at_us, 0, is_heavy);
            assert_eq!(record.log_index(), Some(u32::MAX));
            assert_eq!(record.is_heavy(), is_heavy);
        }
    }
}
