//! Many concurrent calls on one HTTP/2 connection to the service, as Envoy makes them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::kit;
use tollgate_testing::TIMEOUT;
use tollgate_testing::http2::{PREFACE, frame};

/// The default of Envoy for concurrent calls.
const CALLS: u32 = 1_024;

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// The kind of the next frame.
fn next_frame(stream: &mut TcpStream) -> u8 {
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).unwrap();
    head[3]
}

/// Envoy sends them before it knows the limit of the server, and admits a request whose call is refused.
#[test]
fn a_burst_of_calls_on_a_new_connection_is_answered() {
    let rules = "rules: [{ id: everyone, per: [], limit: \"1/h burst 100000\" }]";
    let service = kit::service("", rules);
    let mut stream = TcpStream::connect(service.address("service")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // `GET / HTTP/2` to localhost: entries of the static table and one literal.
    let request = [&[0x82, 0x84, 0x86, 0x01, 9][..], b"localhost"].concat();
    let mut burst = PREFACE.to_vec();
    burst.extend(frame(SETTINGS, 0, 0, &[]));
    for call in 0..CALLS {
        // END_HEADERS and END_STREAM.
        burst.extend(frame(HEADERS, 0x5, 2 * call + 1, &request));
    }
    stream.write_all(&burst).unwrap();
    let mut answered = 0;
    while answered < CALLS {
        match next_frame(&mut stream) {
            HEADERS => answered += 1,
            RST_STREAM => panic!("a call was refused after {answered} responses"),
            GOAWAY => panic!("the connection was closed after {answered} responses"),
            _ => {}
        }
    }
}
