//! Many concurrent calls on one HTTP/2 connection to the service, as Envoy makes them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::gateway_two::frame;
use crate::serving::{PATIENCE, Serving};

/// As many as Envoy makes at a time by default.
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

/// Envoy sends them before it knows how many the other side allows, and admits a request whose call is refused.
#[test]
fn a_burst_of_calls_on_a_new_connection_is_answered() {
    let serving = Serving::by(
        "
service: { listen: 127.0.0.1:0 }
log: { format: json }
rules: [{ id: everyone, per: [], limit: \"1/h burst 100000\" }]
",
    );
    let mut stream = TcpStream::connect(serving.address("service")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // `GET / HTTP/2` to localhost, in the static table's words and one literal.
    let request = [&[0x82, 0x84, 0x86, 0x01, 9][..], b"localhost"].concat();
    let mut burst = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    burst.extend(frame(SETTINGS, 0, 0, &[]));
    for call in 0..CALLS {
        // All of the request: the end of its headers, and of its stream.
        burst.extend(frame(HEADERS, 0x5, 2 * call + 1, &request));
    }
    stream.write_all(&burst).unwrap();
    let mut answered = 0;
    while answered < CALLS {
        match next_frame(&mut stream) {
            HEADERS => answered += 1,
            RST_STREAM => panic!("a call was refused after {answered} answers"),
            GOAWAY => panic!("the connection was closed after {answered} answers"),
            _ => {}
        }
    }
}
