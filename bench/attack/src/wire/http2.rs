//! HTTP/2 without TLS over a raw socket.

use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Instant;

use super::frames::{self, ACK, DATA, END_STREAM, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS};
use super::{Answer, TIMEOUT, connect};

/// Names and values of a head.
pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// A request: its head, and maybe a body with trailers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) fields: Fields,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) trailers: Fields,
}

/// A connection whose server has heard the preface.
pub(crate) fn open(target: SocketAddr, source: Ipv4Addr) -> std::io::Result<TcpStream> {
    let mut stream = connect(target, source)?;
    stream.write_all(&[PREFACE, &frames::settings()].concat())?;
    Ok(stream)
}

/// Sends a request on a connection of its own, and reads its response.
pub(crate) fn exchange(target: SocketAddr, source: Ipv4Addr, request: &Request) -> Answer {
    let Ok(mut stream) = open(target, source) else {
        return Answer::default();
    };
    let mut bytes = frames::head(
        1,
        &request.fields,
        request.body.is_none() && request.trailers.is_empty(),
    );
    if let Some(body) = &request.body {
        let flags = if request.trailers.is_empty() {
            END_STREAM
        } else {
            0
        };
        bytes.extend(frames::frame(DATA, flags, 1, body));
    }
    if !request.trailers.is_empty() {
        bytes.extend(frames::head(1, &request.trailers, true));
    }
    let _ = stream.write_all(&bytes);
    read_response(&mut stream)
}

/// Reads the response of the first stream, to its end or to that of the connection.
fn read_response(stream: &mut TcpStream) -> Answer {
    let deadline = Instant::now() + TIMEOUT;
    let mut answer = Answer::default();
    while Instant::now() < deadline {
        let Some(frame) = read_frame(stream) else {
            break;
        };
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => {
                let _ = stream.write_all(&frames::frame(SETTINGS, ACK, 0, &[]));
            }
            HEADERS if frame.stream == 1 && answer.status.is_none() => {
                answer.status = frames::status(&frame.payload);
            }
            DATA if frame.stream == 1 => answer.body.extend_from_slice(&frame.payload),
            RST_STREAM if frame.stream == 1 => break,
            GOAWAY if answer.status.is_none() && frame.payload.get(4..8) != Some(&[0; 4]) => break,
            _ => {}
        }
        if matches!(frame.kind, DATA | HEADERS)
            && frame.stream == 1
            && frame.flags & END_STREAM != 0
        {
            break;
        }
    }
    answer
}

pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// `None` at the end of the connection, or when time runs out.
pub(crate) fn read_frame(stream: &mut impl Read) -> Option<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let [a, b, c, kind, flags, id @ ..] = head;
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).ok()?;
    Some(Frame {
        kind,
        flags,
        stream: u32::from_be_bytes(id) & 0x7fff_ffff,
        payload,
    })
}
