//! A request that was denied and comes again on its connection in the same words. It is decided on, named, counted and logged like any other, but not read
//! again: the limiter is asked what it was asked before.

use std::time::SystemTime;

use http::Response;
use quanta::Instant;
use tollgate_tower::answer::PROBLEM_JSON;
use tollgate_tower::layer::{Repeat, Repeated};

use super::access_log::Asked;
use super::account::Account;
use crate::listen::{Again, Repeatable, Repeats, push_answer};

/// Answers it.
#[derive(Debug)]
pub(super) struct DeniedBefore {
    /// Only if there is a log.
    asked: Option<Asked>,
    repeat: Repeat,
    /// Of the answer that goes out.
    account: Account,
    /// How long its body is.
    bytes: usize,
}

impl DeniedBefore {
    /// From now on, if the layer gave what is needed for it.
    pub(super) fn answers_again<B>(response: &mut Response<B>, account: &Account) {
        if let Some(repeat) = response.extensions_mut().remove::<Repeat>() {
            let repeatable = Repeatable::by(Self {
                asked: account.asked().map(Asked::to_keep),
                repeat,
                account: Account::closed(account.desk()),
                bytes: 0,
            });
            response.extensions_mut().insert(repeatable);
        }
    }
}

impl Repeats for DeniedBefore {
    fn again(&mut self, answer: &mut Vec<u8>) -> Again {
        let began = Instant::now();
        let (asked, account) = (&self.asked, &mut self.account);
        let repeated = self.repeat.ask(|denied| {
            let id = account.desk().ids.make();
            let fields = [
                b"content-type: ",
                PROBLEM_JSON.as_bytes(),
                b"\r\nx-request-id: ",
                id.as_bytes(),
                b"\r\n",
                denied.lines(),
            ];
            push_answer(denied.status(), &fields, denied.body(), began, answer);
            let asked = asked.as_ref().map(|asked| Asked {
                at: SystemTime::now(),
                id: id.value(),
                ..asked.clone()
            });
            account.denied_again(began, asked, denied);
            self.bytes = denied.body().len();
        });
        match repeated {
            Repeated::Denied => Again::Answered,
            Repeated::Admitted(admitted) => Again::Admitted(admitted),
            Repeated::Unknown => Again::Unknown,
        }
    }

    fn sent(&mut self) {
        self.account.sent(self.bytes, true);
        self.account.close();
    }
}
