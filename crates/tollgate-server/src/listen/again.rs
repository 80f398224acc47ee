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
#[derive(Default)]
pub(super) struct LastDenied {
    head: Vec<u8>,
    answered_by: Option<Box<dyn Repeats>>,
    /// Somebody who answers it was asked for; and did not come, as it may have another answer each time, say.
    is_wanted: bool,
    in_vain: bool,
}

impl LastDenied {
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
        if matches!(again, Again::Unknown) {
            self.answered_by = None;
        }
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
        self.is_wanted = self.answered_by.is_none() && !self.in_vain && self.begins(head);
        if self.is_wanted {
            extensions.insert(WantRepeat);
        }
    }

    /// This was the answer to it.
    pub(super) fn note<B>(&mut self, head: &[u8], answer: &mut Response<B>) {
        if answer.status() != StatusCode::TOO_MANY_REQUESTS || head.len() > LONGEST_HEAD {
            return;
        }
        if self.head != head {
            *self = Self {
                head: head.to_vec(),
                ..Self::default()
            };
        }
        if let Some(repeatable) = answer.extensions_mut().remove::<Repeatable>() {
            self.answered_by = repeatable.0.lock().take();
        } else {
            self.in_vain |= self.is_wanted;
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
        let mut last = LastDenied::default();
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
        let mut last = LastDenied::default();
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

    #[test]
    fn who_gets_nobody_to_ask_does_not_ask_for_it_for_ever() {
        let mut last = LastDenied::default();
        let mut plain = denied(Denies);
        plain.extensions_mut().clear();
        last.note(b"GET /a\r\n\r\n", &mut plain);
        assert!(is_wanted(&mut last, b"GET /a\r\n\r\n"));
        last.note(b"GET /a\r\n\r\n", &mut plain);
        assert!(!is_wanted(&mut last, b"GET /a\r\n\r\n"));
        last.note(b"GET /b\r\n\r\n", &mut plain);
        assert!(is_wanted(&mut last, b"GET /b\r\n\r\n"));
    }

    #[test]
    fn who_does_not_know_is_not_asked_again_and_another_is_wanted() {
        let mut last = LastDenied::default();
        last.note(b"GET /a\r\n\r\n", &mut denied(Forgets));
        assert!(!is_wanted(&mut last, b"GET /a\r\n\r\n"));
        assert!(last.again(b"GET /a\r\n\r\n", &mut Vec::new()).is_some());
        assert!(last.again(b"GET /a\r\n\r\n", &mut Vec::new()).is_none());
        assert!(is_wanted(&mut last, b"GET /a\r\n\r\n"));
    }

    #[test]
    fn what_passed_or_is_long_is_not_kept() {
        let mut last = LastDenied::default();
        let mut passed = denied(Denies);
        *passed.status_mut() = StatusCode::OK;
        last.note(b"GET /a\r\n\r\n", &mut passed);
        last.note(&[b'a'; LONGEST_HEAD + 1], &mut denied(Denies));
        assert!(last.head.is_empty() && last.answered_by.is_none());
    }
}
