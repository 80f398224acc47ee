//! Placeholders in the texts of cases.

use std::net::Ipv4Addr;

use sha2::{Digest as _, Sha256};

/// The API key of a client whose limit no case reaches.
pub(crate) const OTHER_KEY: &str = "key-roomy";

/// What belongs to one case alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u32);

impl Word {
    /// Lower-case letters and digits.
    pub(crate) fn text(self) -> String {
        format!("w{:05}x", self.0)
    }

    /// An address from the networks for benchmarks, that nobody has.
    pub(crate) fn address(self) -> Ipv4Addr {
        let [_, _, c, d] = self.0.to_be_bytes();
        Ipv4Addr::new(198, 18, c, d)
    }

    /// A loopback address for all requests of the case.
    pub(crate) fn source(self) -> Ipv4Addr {
        let [_, _, c, d] = self.0.to_be_bytes();
        Ipv4Addr::new(127, 200, c, d)
    }

    fn placeholder(self, name: &str, attempt: usize) -> Option<String> {
        Some(match name {
            "w" => self.text(),
            "W" => self.text().to_ascii_uppercase(),
            "key" => format!("key-{}", self.text()),
            "key_sha256" => sha256(&format!("key-{}", self.text())),
            "other" => OTHER_KEY.to_owned(),
            "other_sha256" => sha256(OTHER_KEY),
            "host" => format!("{}.attack.test", self.text()),
            "address" => self.address().to_string(),
            "source" => self.source().to_string(),
            "i" => attempt.to_string(),
            // Longer than any value that is looked at.
            "long" => "x".repeat(5_000),
            // Nearly as many lines as a head may have.
            "many" => "X-Filler: y\r\n".repeat(90),
            // More than that.
            "flood" => "X-Filler: y\r\n".repeat(200),
            _ => return None,
        })
    }
}

fn sha256(key: &str) -> String {
    let digest = Sha256::digest(key);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Replaces the placeholders. Other braces stay as they are.
pub(crate) fn fill(template: &[u8], word: Word, attempt: usize) -> Vec<u8> {
    let mut filled = Vec::with_capacity(template.len() + 32);
    let mut rest = template;
    while let Some(start) = rest.iter().position(|byte| *byte == b'{') {
        let (before, from) = rest.split_at(start);
        filled.extend_from_slice(before);
        let end = from.iter().position(|byte| *byte == b'}');
        let name = end.and_then(|end| std::str::from_utf8(from.get(1..end)?).ok());
        match (name.and_then(|name| word.placeholder(name, attempt)), end) {
            (Some(value), Some(end)) => {
                filled.extend_from_slice(value.as_bytes());
                rest = from.get(end + 1..).unwrap_or_default();
            }
            _ => {
                filled.push(b'{');
                rest = from.get(1..).unwrap_or_default();
            }
        }
    }
    filled.extend_from_slice(rest);
    filled
}

/// The same for text.
pub(crate) fn fill_text(template: &str, word: Word) -> String {
    String::from_utf8_lossy(&fill(template.as_bytes(), word, 0)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_and_other_braces_stay() {
        let filled = fill(b"/{w}/{id}/{W}{ {i}\xff", Word(7), 3);
        assert_eq!(filled, b"/w00007x/{id}/W00007X{ 3\xff");
        assert_eq!(fill_text("{ id: {key} }", Word(1)), "{ id: key-w00001x }");
    }
}
