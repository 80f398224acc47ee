//! What is allowed, in the words of the command line.

use std::str::FromStr;

/// So many in so many seconds for each client, on one path or on all.
#[derive(Clone, Debug)]
pub(crate) struct Tier {
    pub(crate) name: String,
    pub(crate) limit: u32,
    pub(crate) seconds: u32,
    pub(crate) path: Option<String>,
}

impl Tier {
    pub(crate) fn is_for(&self, path: &str) -> bool {
        self.path.as_deref().is_none_or(|own| own == path)
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no tier: expected name:limit:seconds[:path]");
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or_else(wrong);
        let name = next()?.to_owned();
        let limit = next()?.parse().map_err(|_| wrong())?;
        let seconds = next()?.parse().map_err(|_| wrong())?;
        let path = parts.next().map(str::to_owned);
        Ok(Self {
            name,
            limit,
            seconds,
            path,
        })
    }
}
