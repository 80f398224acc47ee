//! The queue of a leaky bucket in front of a server: what is promised of it, judged by when requests reached the server.

use std::time::{Duration, Instant};

use tollgate_referee::{Bound, Log};

/// So late may a busy machine be with one that has its turn. Whoever is late comes closer to the next.
const LATE: Duration = Duration::from_millis(500);

/// The clocks of the limiter and the test are looked at one after the other.
const TICK: Duration = Duration::from_millis(2);

/// Callers who came all together to a queue that was empty, and what became of them.
pub(crate) struct Rush {
    pub(crate) per_second: u32,
    pub(crate) queue: usize,
    /// Before the first came.
    pub(crate) began: Instant,
    /// When all were decided on.
    pub(crate) decided: Instant,
    pub(crate) statuses: Vec<u16>,
    /// When requests reached the server.
    pub(crate) came: Vec<Instant>,
}

impl Rush {
    /// R03: what comes out has a constant rate, never more than the queue waits, and who finds it full is rejected.
    pub(crate) fn check(mut self) {
        self.came.sort();
        let count = |wanted| self.statuses.iter().filter(|is| **is == wanted).count();
        let (passed, rejected) = (count(200), count(429));
        assert_eq!(passed + rejected, self.statuses.len());
        assert_eq!(passed, self.came.len(), "each reached the server once");
        self.check_the_room(passed);
        assert!(rejected > 0, "nobody found the queue full");
        self.check_the_rate();
    }

    /// The queue, and those whose turn came while the others arrived.
    fn check_the_room(&self, passed: usize) {
        let arriving = (self.decided - self.began).as_micros();
        let turns = arriving * u128::from(self.per_second) / 1_000_000 + 1;
        let most = self.queue + usize::try_from(turns).unwrap();
        assert!(
            (self.queue..=most).contains(&passed),
            "{passed} passed, with a queue of {} and {turns} turns while they came",
            self.queue
        );
        let by_then = self.came.partition_point(|at| *at <= self.decided + LATE);
        let waiting = passed - by_then;
        assert!(waiting <= self.queue, "{waiting} wait");
    }

    /// Nobody comes before its turn, or long after; and nowhere on the way there are more than the rate and those who were late.
    fn check_the_rate(&self) {
        let turn = Duration::from_secs(1) / self.per_second;
        for (nth, at) in (0..).zip(&self.came) {
            let (earliest, latest) = (self.began + turn * nth, self.decided + turn * nth + LATE);
            assert!(
                (earliest..=latest).contains(&(*at + TICK)),
                "the one at place {nth} came after {:?}, its turn was between {:?} and {:?}",
                *at - self.began,
                earliest - self.began,
                latest - self.began
            );
        }
        let late = LATE.as_millis() * u128::from(self.per_second) / 1_000;
        let since = |at: &Instant| u64::try_from((*at - self.began).as_micros()).unwrap();
        let log = Log::new(self.came.iter().map(|at| (since(at), 1)));
        let excess = log.excess(Bound::Bucket {
            burst: 1 + u64::try_from(late).unwrap(),
            count: self.per_second.into(),
            period_us: 1_000_000,
        });
        assert_eq!(excess.tokens, 0, "{excess}");
    }
}
