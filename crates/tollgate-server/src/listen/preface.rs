//! Which version of HTTP a caller speaks who did not say so in TLS.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;

/// Every connection of HTTP/2 begins like this, and no request of HTTP/1 does.
const PREFACE: &[u8] = b"PRI";

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// Looks at the first bytes without taking them. Waits for as long as they take; the caller is to bound that.
pub(super) async fn version(stream: &TcpStream) -> io::Result<Version> {
    let mut seen = [0; PREFACE.len()];
    loop {
        let read = stream.peek(&mut seen).await?;
        let said = seen.get(..read).unwrap_or_default();
        if said == PREFACE {
            return Ok(Version::Two);
        }
        if said.is_empty() || !PREFACE.starts_with(said) {
            return Ok(Version::One);
        }
        // A part of it, and the socket is readable all the time: look again in a moment.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
