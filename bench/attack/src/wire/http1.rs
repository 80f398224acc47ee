//! HTTP/1 over a raw socket.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Instant;

use super::{Answer, TIMEOUT, connect};

/// Sends these bytes on a connection of their own, and reads the first response that is final.
pub(crate) fn exchange(target: SocketAddr, source: Ipv4Addr, request: &[u8]) -> Answer {
    let Ok(mut stream) = connect(target, source) else {
        return Answer::default();
    };
    // A server that refuses a head may close the connection before all of it is written. Its response counts.
    let _ = stream.write_all(request);
    read_response(&mut stream)
}

/// Reads a response up to its length, the end of its chunks, or the end of the connection.
pub(crate) fn read_response(stream: &mut TcpStream) -> Answer {
    let deadline = Instant::now() + TIMEOUT;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        if let Some(answer) = complete(&bytes) {
            return answer;
        }
        if Instant::now() > deadline {
            return parse(&bytes).map_or_else(Answer::default, |(answer, _)| answer);
        }
        match stream.read(&mut buffer) {
            Ok(length) if length > 0 => {
                bytes.extend_from_slice(buffer.get(..length).unwrap_or_default());
            }
            // The end, or no more within the time.
            _ => return parse(&bytes).map_or_else(Answer::default, |(answer, _)| answer),
        }
    }
}

/// The response, if all of it is there. Interim responses are left out.
fn complete(bytes: &[u8]) -> Option<Answer> {
    let (answer, head) = parse(bytes)?;
    let length = field(&head, "content-length").and_then(|text| text.parse::<usize>().ok());
    let is_chunked = field(&head, "transfer-encoding").is_some();
    let has_no_body = matches!(answer.status, Some(204 | 304 | 101));
    let is_complete = has_no_body
        || length.is_some_and(|length| answer.body.len() >= length)
        || is_chunked && answer.body.ends_with(b"0\r\n\r\n");
    is_complete.then_some(answer)
}

/// The final response as far as it came, and its head.
fn parse(mut bytes: &[u8]) -> Option<(Answer, String)> {
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let (head, body) = bytes.split_at(end + 4);
        let head = String::from_utf8_lossy(head).into_owned();
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok())?;
        if (100..200).contains(&status) && status != 101 {
            bytes = body;
            continue;
        }
        let answer = Answer {
            status: Some(status),
            body: body.to_vec(),
        };
        return Some((answer, head));
    }
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_complete_at_its_length_and_interim_ones_are_left_out() {
        let head =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 Too Many\r\nContent-Length: 3\r\n\r\n";
        assert!(complete(head).is_none());
        let whole = [&head[..], b"abc"].concat();
        let answer = complete(&whole).unwrap();
        assert_eq!((answer.status, &answer.body[..]), (Some(429), &b"abc"[..]));
        assert!(complete(b"HTTP/1.1 200 OK\r\n").is_none());
    }
}
