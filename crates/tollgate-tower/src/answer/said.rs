//! What was said last. In a flood of denials most are told the same as whoever came before, to the millisecond: that need not be written again.

use std::cell::Cell;

use tollgate::{Limit, Name, Tier};

use super::denial::{Denial, Reason};
use super::legacy::Bound;
use super::retry::ceil_seconds;
use super::sheet::FieldLines;
use super::{Answers, HeaderFamilies};

thread_local! {
    static LAST: Cell<Option<Box<Said>>> = const { Cell::new(None) };
}

/// An answer, and all that it is made of: what has the same figures is said in the same words.
struct Said {
    figures: Figures,
    tiers: Vec<TierFigures>,
    answer: FieldLines,
}

#[derive(PartialEq)]
struct Figures {
    families: HeaderFamilies,
    shadows: bool,
    reason: Reason,
    /// Those in seconds follow from it.
    retry_after_ms: Option<u64>,
    bound: Option<Bound>,
}

#[derive(Clone, Copy, PartialEq)]
struct TierFigures {
    rule: Name,
    limit: Limit,
    remaining: u64,
    reset_after: u64,
    is_shadow: bool,
    is_allowed: bool,
    is_stopping: bool,
}

impl Figures {
    fn of(answers: &Answers, denial: &Denial<'_>) -> Self {
        Self {
            families: answers.families,
            shadows: answers.shadows,
            reason: denial.reason(),
            retry_after_ms: denial.retry_after_ms(),
            bound: Bound::of(denial.decision()),
        }
    }
}

impl TierFigures {
    fn of(tier: &Tier, denial: &Denial<'_>) -> Self {
        let verdict = tier.verdict();
        Self {
            rule: tier.rule(),
            limit: *tier.limit(),
            remaining: tier.remaining(),
            reset_after: ceil_seconds(tier.reset_after()),
            is_shadow: tier.is_shadow(),
            is_allowed: verdict.allowed(),
            is_stopping: denial.is_stopped_by(verdict),
        }
    }
}

/// Tells `hear` the answer to this denial: the last one if that says the same, or else what `write` writes.
pub(super) fn again_or<R>(
    answers: &Answers,
    denial: &Denial<'_>,
    write: impl FnOnce() -> FieldLines,
    hear: impl FnOnce(&FieldLines) -> R,
) -> R {
    let figures = Figures::of(answers, denial);
    let tiers = denial.decision().tiers().iter();
    let tiers = tiers.map(|tier| TierFigures::of(tier, denial));
    // None if the thread is ending.
    let last = LAST.try_with(Cell::take).ok().flatten();
    let is_same =
        |said: &Said| said.figures == figures && said.tiers.iter().copied().eq(tiers.clone());
    let said = match last {
        Some(said) if is_same(&said) => said,
        _ => Box::new(Said {
            tiers: tiers.collect(),
            figures,
            answer: write(),
        }),
    };
    let heard = hear(&said.answer);
    let _ = LAST.try_with(|last| last.set(Some(said)));
    heard
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use tollgate::store::MemoryConfig;
    use tollgate::{Clock, Decision, LocalLimiter, ManualClock, Mode, Request, Rule};

    use super::*;

    fn rule(name: &str, limit: &str) -> Rule {
        Rule::new(name, limit.parse().unwrap()).unwrap()
    }

    fn rules() -> [Rule; 4] {
        [
            rule("second", "10/s burst 5"),
            rule("hour", "1000 per 1h fixed_window"),
            rule("watched", "4/s burst 2").mode(Mode::Shadow),
            rule("queue", "8/s queue 3 leaky_bucket"),
        ]
    }

    fn limiter(hand: &ManualClock, rules: [Rule; 4]) -> LocalLimiter {
        let config = MemoryConfig {
            clock: Clock::from(hand),
            ..MemoryConfig::default()
        };
        LocalLimiter::with(config).with_rules(rules).unwrap()
    }

    /// Limiters that decide alike by rules that differ in one thing: a name, a window, who only watches.
    fn limiters(hand: &ManualClock) -> [LocalLimiter; 4] {
        let [second, hour, watched, queue] = rules();
        let renamed = rule("minute", "10/s burst 5");
        let longer = rule("hour", "1000 per 2h fixed_window");
        let deciding = rule("watched", "4/s burst 2");
        [
            [&second, &hour, &watched, &queue],
            [&renamed, &hour, &watched, &queue],
            [&second, &longer, &watched, &queue],
            [&second, &hour, &deciding, &queue],
        ]
        .map(|rules| limiter(hand, rules.map(Rule::clone)))
    }

    /// Body and fields.
    fn told(answers: &Answers, denial: &Denial<'_>) -> [Vec<u8>; 2] {
        answers.usual(denial, |said| {
            [said.before().to_vec(), said.as_bytes().to_vec()]
        })
    }

    #[test]
    fn what_is_said_again_is_what_would_be_written() {
        // An hour, and the two hours that it is the second of, end at the same time.
        let hand = ManualClock::at(Duration::from_secs(1_700_004_000));
        let limiters = limiters(&hand);
        let silent = HeaderFamilies {
            retry_after: false,
            ..HeaderFamilies::NONE
        };
        let all: Vec<Answers> = [HeaderFamilies::default(), HeaderFamilies::NONE, silent]
            .into_iter()
            .flat_map(|families| {
                [false, true].map(|shadows| Answers {
                    shadows,
                    ..Answers::new(families)
                })
            })
            .collect();
        let (mut seed, mut denials, mut same) = (7_u64, 0, 0);
        let mut before = [const { Vec::new() }; 2];
        for _ in 0..50_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut random = |below: u64| {
                seed ^= seed >> 29;
                seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (seed >> 33) % below
            };
            let waits_us = [0, 0, 1, 400, 90_000][usize::try_from(random(5)).unwrap()];
            hand.advance(Duration::from_micros(waits_us));
            let cost = random(7);
            // All alike, so that they differ only in what they are told.
            let decisions = (limiters.each_ref()).map(|limiter| {
                let request = Request::new().cost(cost);
                limiter.decide(&request)
            });
            let decision = &decisions[usize::try_from(random(4)).unwrap()];
            let patience = Duration::from_millis(random(200));
            let denial = Denial::of(decision).or_else(|| Denial::of_impatient(decision, patience));
            let Some(denial) = denial else { continue };
            let answers = &all[usize::try_from(random(6)).unwrap()];
            let again = told(answers, &denial);
            LAST.take();
            assert_eq!(again, told(answers, &denial), "{decision:?}");
            denials += 1;
            same += u32::from(again == before);
            before = again;
        }
        assert!(denials > 20_000 && same > 500, "{denials}, {same} the same");
    }

    #[test]
    fn a_time_of_day_is_said_anew_though_nothing_else_has_changed() {
        let hand = ManualClock::at(Duration::from_secs(1_700_000_000));
        let limiter = limiter(&hand, rules());
        let answers = Answers::default();
        let fields = || {
            let never_fits = limiter.decide(&Request::new().cost(100));
            let [_, fields] = told(&answers, &Denial::of(&never_fits).unwrap());
            String::from_utf8(fields).unwrap()
        };
        assert!(fields().contains("x-ratelimit-reset: 1700000000\r\n"));
        hand.advance(Duration::from_secs(1));
        assert!(fields().contains("x-ratelimit-reset: 1700000001\r\n"));
    }

    #[test]
    fn what_was_said_last_is_not_written_again() {
        let hand = ManualClock::at(Duration::from_secs(1_700_000_000));
        let limiter = limiter(&hand, rules());
        let answers = Answers::default();
        let denied = || -> Decision { limiter.decide(&Request::new().cost(3)) };
        let at = |decision: &Decision| {
            let denial = Denial::of(decision).unwrap();
            answers.usual(&denial, |said| said.as_bytes().as_ptr())
        };
        let first = loop {
            let decision = denied();
            if !decision.allowed() {
                break decision;
            }
        };
        let lies = at(&first);
        assert_eq!(lies, at(&denied()));
        // A microsecond is less than anybody is told.
        hand.advance(Duration::from_micros(1));
        assert_eq!(lies, at(&denied()));
    }
}
