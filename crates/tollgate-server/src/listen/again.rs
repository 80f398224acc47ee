//! A request that comes again on its connection in the same words: who is denied and asks on and on mostly asks for the same.

use std::fmt;
use std::sync::Arc;

use http::{Extensions, Response, StatusCode};
use parking_lot::Mutex;
use tollgate_tower::layer::{Admitted, WantRepeat};

/// The longest head that is kept to be known again.
const LONGEST_HEAD: usize = 1_024;

/// What answers a request that comes again, byte for byte and on the same connection.
pub(crate) trait Repeats: Send {
    /// Decides about it as if it were new. If it is denied, writes the whole answer, its head and its body.
    fn again(&mut self, answer: &mut Vec<u8>) -> Again;

    /// The answer has gone out.
    fn sent(&mut self);
}

/// What came of it.
pub(crate) enum Again {
    /// The answer is written.
    Answered,
    /// It goes the usual way, with this among its extensions.
    Admitted(Admitted),
    /// It goes the usual way.
    Unknown,
}

/// Among the extensions of an answer: what answers the same request from now on, for the first who takes it.
#[derive(Clone)]
pub(crate) struct Repeatable(Arc<Mutex<Option<Box<dyn Repeats>>>>);

impl Repeatable {
    pub(crate) fn by(repeats: impl Repeats + 'static) -> Self {
        let repeats: Box<dyn Repeats> = Box::new(repeats);
        Self(Arc::new(Mutex::new(Some(repeats))))
    }
}

impl fmt::Debug for Repeatable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repeatable").finish_non_exhaustive()
    }
}

/// The last request of a connection that was denied. It is asked for what answers it when it comes a second time, so that those who do not ask
/// again cost nothing.
pub(super) struct LastDenied {
    /// Whether anybody would answer it.
    is_kept: bool,
    head: Vec<u8>,
    answered_by: Option<Box<dyn Repeats>>,
    /// Somebody who answers it was asked for.
    is_wanted: bool,
    vain: Vain,
}

/// For how many requests nobody is asked for, as whoever came could not answer, or nobody did: it may have another answer each time, say. Twice as many
/// each time, up to a bound, until somebody has answered.
struct Vain {
    left: u8,
    next: u8,
}

const FEWEST_IN_VAIN: u8 = 1;
const MOST_IN_VAIN: u8 = 64;

impl Vain {
    const NOT: Self = Self {
        left: 0,
        next: FEWEST_IN_VAIN,
    };

    fn again(&mut self) {
        self.left = self.next - 1;
        self.next = self.next.saturating_mul(2).min(MOST_IN_VAIN);
    }

    /// Whether to try it this time.
    fn try_now(&mut self) -> bool {
        let is_over = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_over
    }
}

impl LastDenied {
    /// What is denied is kept only where somebody may answer it again.
    pub(super) fn new(is_kept: bool) -> Self {
        Self {
            is_kept,
            head: Vec::new(),
            answered_by: None,
            is_wanted: false,
            vain: Vain::NOT,
        }
    }

    /// Whether what was read begins with it.
    fn begins(&self, read: &[u8]) -> bool {
        !self.head.is_empty() && read.starts_with(&self.head)
    }

    /// How long it is, and what came of it, if what was read begins with it and there is somebody to ask.
    pub(super) fn again(&mut self, read: &[u8], answer: &mut Vec<u8>) -> Option<(usize, Again)> {
        if !self.begins(read) {
            return None;
        }
        let again = self.answered_by.as_mut()?.again(answer);
        match again {
            Again::Answered | Again::Admitted(_) => self.vain = Vain::NOT,
            Again::Unknown => {
                self.answered_by = None;
                self.vain.again();
            }
        }
        // Whoever is asked for this one is known.
        self.is_wanted = false;
        Some((self.head.len(), again))
    }

    /// The answer has gone out.
    pub(super) fn sent(&mut self) {
        if let Some(answered_by) = &mut self.answered_by {
            answered_by.sent();
        }
    }

    /// A request with this head goes the usual way.
    pub(super) fn passes(&mut self, head: &[u8], extensions: &mut Extensions) {
        self.is_wanted = self.answered_by.is_none() && self.begins(head) && self.vain.try_now();
        if self.is_wanted {
            extensions.insert(WantRepeat);
        }
    }

    /// This was the answer to it.
    pub(super) fn note<B>(&mut self, head: &[u8], answer: &mut Response<B>) {
        let is_denied = answer.status() == StatusCode::TOO_MANY_REQUESTS;
        if !self.is_kept || !is_denied || head.len() > LONGEST_HEAD {
            return;
        }
        if self.head != head {
            self.head.clear();
            self.head.extend_from_slice(head);
            self.answered_by = None;
            self.is_wanted = false;
            self.vain = Vain::NOT;
        }
        if let Some(repeatable) = answer.extensions_mut().remove::<Repeatable>() {
            self.answered_by = repeatable.0.lock().take();
        } else if self.is_wanted {
            self.vain.again();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Denies;

    impl Repeats for Denies {
        fn again(&mut self, answer: &mut Vec<u8>) -> Again {
            answer.extend_from_slice(b"no");
            Again::Answered
        }

        fn sent(&mut self) {}
    }

    struct Forgets;

    impl Repeats for Forgets {
        fn again(&mut self, _: &mut Vec<u8>) -> Again {
            Again::Unknown
        }

        fn sent(&mut self) {}
    }

    fn denied(by: impl Repeats + 'static) -> Response<()> {
        let mut answer = Response::new(());
        *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        answer.extensions_mut().insert(Repeatable::by(by));
        answer
    }

    fn is_wanted(last: &mut LastDenied, head: &[u8]) -> bool {
        let mut extensions = Extensions::new();
        last.passes(head, &mut extensions);
        extensions.get::<WantRepeat>().is_some()
    }

    #[test]
    fn who_answers_is_asked_for_when_a_denied_request_comes_a_second_time() {
        let mut last = LastDenied::new(true);
        assert!(!is_wanted(&mut last, b"GET /a\r\n\r\n"));
        let mut plain = denied(Denies);
        plain.extensions_mut().clear();
        last.note(b"GET /a\r\n\r\n", &mut plain);
        assert!(is_wanted(&mut last, b"GET /a\r\n\r\n"));
        assert!(!is_wanted(&mut last, b"GET /b\r\n\r\n"));
        assert!(last.again(b"GET /a\r\n\r\n", &mut Vec::new()).is_none());
    }

    #[test]
    fn only_the_same_bytes_are_answered_and_what_follows_is_left() {
        let mut last = LastDenied::new(true);
        last.note(b"GET /a\r\n\r\n", &mut denied(Denies));
        for other in [
            &b"GET /a\r\n"[..],
            b"GET /b\r\n\r\n",
            b"GET /a\r\nx: y\r\n\r\n",
            b"",
        ] {
            assert!(last.again(other, &mut Vec::new()).is_none());
        }
        let mut answer = Vec::new();
        let (length, again) = last.again(b"GET /a\r\n\r\nGET /c", &mut answer).unwrap();
        assert_eq!((length, &answer[..]), (10, &b"no"[..]));
        assert!(matches!(again, Again::Answered));
    }

    /// Whether it is asked for somebody, each of so many times that it is denied and nobody comes.
    fn asked_in_vain(last: &mut LastDenied, head: &[u8], times: usize) -> Vec<bool> {
        let mut plain = denied(Denies);
        plain.extensions_mut().clear();
        let ask = |_| {
            let is_wanted = is_wanted(last, head);
            last.note(head, &mut plain);
            is_wanted
        };
        (0..times).map(ask).collect()
    }

    #[test]
    fn who_gets_nobody_to_ask_asks_for_it_ever_more_seldom() {
        let mut last = LastDenied::new(true);
        let asked = asked_in_vain(&mut last, b"GET /a\r\n\r\n", 1_000);
        assert_eq!(
            asked[..9],
            [false, true, true, false, true, false, false, false, true]
        );
        let often = asked.iter().filter(|is_wanted| **is_wanted).count();
        assert!((15..=25).contains(&often), "{often} times");
        // For another request it may be otherwise.
        let asked = asked_in_vain(&mut last, b"GET /b\r\n\r\n", 2);
        assert_eq!(asked, [false, true]);
    }

    #[test]
    fn who_does_not_know_is_not_asked_again_and_another_is_wanted() {
        let mut last = LastDenied::new(true);
        last.note(b"GET /a\r\n\r\n", &mut denied(Forgets));
        assert!(!is_wanted(&mut last, b"GET /a\r\n\r\n"));
        assert!(last.again(b"GET /a\r\n\r\n", &mut Vec::new()).is_some());
        assert!(last.again(b"GET /a\r\n\r\n", &mut Vec::new()).is_none());
        assert!(is_wanted(&mut last, b"GET /a\r\n\r\n"));
    }

    /// Denials that are not remembered, say: to prepare for each what is never asked would cost more than it saves.
    #[test]
    fn if_nobody_ever_knows_they_are_wanted_ever_more_seldom() {
        let mut last = LastDenied::new(true);
        let head = b"GET /a\r\n\r\n";
        let mut often = 0;
        for _ in 0..1_000 {
            assert!(
                last.again(head, &mut Vec::new())
                    .is_none_or(|(_, again)| matches!(again, Again::Unknown))
            );
            let is_wanted = is_wanted(&mut last, head);
            often += usize::from(is_wanted);
            let mut answer = denied(Forgets);
            if !is_wanted {
                answer.extensions_mut().clear();
            }
            last.note(head, &mut answer);
        }
        assert!((15..=25).contains(&often), "{often} times");
        // Once somebody has known, the next is wanted at once.
        last.note(head, &mut denied(Denies));
        assert!(last.again(head, &mut Vec::new()).is_some());
        last.answered_by = Some(Box::new(Forgets));
        assert!(last.again(head, &mut Vec::new()).is_some());
        assert!(is_wanted(&mut last, head));
    }

    #[test]
    fn nothing_is_kept_where_nobody_answers() {
        let mut last = LastDenied::new(false);
        last.note(b"GET /a\r\n\r\n", &mut denied(Denies));
        assert!(last.head.is_empty() && last.answered_by.is_none());
    }

    #[test]
    fn what_passed_or_is_long_is_not_kept() {
        let mut last = LastDenied::new(true);
        let mut passed = denied(Denies);
        *passed.status_mut() = StatusCode::OK;
        last.note(b"GET /a\r\n\r\n", &mut passed);
        last.note(&[b'a'; LONGEST_HEAD + 1], &mut denied(Denies));
        assert!(last.head.is_empty() && last.answered_by.is_none());
    }
}
