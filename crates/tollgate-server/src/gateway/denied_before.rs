//! A request that was denied and comes again on its connection in the same words. It is decided on, named, counted and logged like any other, but not read
//! again: the limiter is asked what it was asked before.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::Response;
use tollgate_tower::answer::PROBLEM_JSON;
use tollgate_tower::layer::{Repeat, Repeated};

use super::access_log::Asked;
use super::account::Account;
use super::front::Desk;
use crate::listen::{Again, Repeatable, Repeats, push_answer};

/// Answers it.
#[derive(Debug)]
pub(super) struct DeniedBefore {
    desk: Arc<Desk>,
    /// Only if there is a log.
    asked: Option<Asked>,
    repeat: Repeat,
    /// Of the answer that goes out, and how long its body is.
    account: Option<(Account, usize)>,
}

impl DeniedBefore {
    /// From now on, if the layer gave what is needed for it.
    pub(super) fn answers_again<B>(response: &mut Response<B>, account: &Account) {
        if let Some(repeat) = response.extensions_mut().remove::<Repeat>() {
            let repeatable = Repeatable::by(Self {
                desk: Arc::clone(account.desk()),
                asked: account.asked().map(Asked::to_keep),
                repeat,
                account: None,
            });
            response.extensions_mut().insert(repeatable);
        }
    }
}

impl Repeats for DeniedBefore {
    fn again(&mut self, answer: &mut Vec<u8>) -> Again {
        let (desk, began) = (&self.desk, Instant::now());
        let (asked, account) = (&self.asked, &mut self.account);
        let repeated = self.repeat.ask(|denied| {
            let id = desk.ids.make();
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
            let of_it = Account::denied_again(desk, began, asked, denied);
            *account = Some((of_it, denied.body().len()));
        });
        match repeated {
            Repeated::Denied => Again::Answered,
            Repeated::Admitted(admitted) => Again::Admitted(admitted),
            Repeated::Unknown => Again::Unknown,
        }
    }

    fn sent(&mut self) {
        if let Some((mut account, bytes)) = self.account.take() {
            account.sent(bytes, true);
        }
    }
}
