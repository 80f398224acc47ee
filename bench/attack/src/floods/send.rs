//! The loads of the floods, each bounded in count and time.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::lists::floods::{FRAMES, KEYS, REQUESTS};
use crate::template::{Word, fill};
use crate::wire::frames::{self, END_HEADERS, END_STREAM, HEADERS, SETTINGS};
use crate::wire::{connect, http1, http2};

/// How long a flood goes on at most.
const LENGTH: Duration = Duration::from_secs(4);

/// How many connections send frames.
const CONNECTIONS: u8 = 2;

/// An address for the connections of a flood.
pub(super) fn source(network: u8, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 60, network, 1 + number % 250)
}

fn on_connections<T: Send>(send: impl Fn(u8) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                scope.spawn({
                    let send = &send;
                    move || send(number)
                })
            })
            .collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    })
}

/// Sends frames on a few connections. Returns of each whether the server closed it.
pub(super) fn send_frames(address: SocketAddr, frame: fn(u32) -> Vec<u8>) -> Vec<bool> {
    on_connections(|number| {
        let Ok(mut stream) = http2::open(address, source(11, number)) else {
            return false;
        };
        let reader = stream.try_clone();
        let begin = Instant::now();
        let drained =
            std::thread::spawn(move || reader.is_ok_and(|mut reader| drain(&mut reader, LENGTH)));
        let mut next = 0;
        while next < FRAMES && begin.elapsed() < LENGTH {
            let batch: Vec<u8> = (next..next + 100).flat_map(frame).collect();
            next += 100;
            if stream.write_all(&batch).is_err() {
                // Closed by the server.
                break;
            }
        }
        drained.join().unwrap_or(false)
    })
}

/// Reads what comes. Returns whether the connection was closed within this time.
fn drain(stream: &mut TcpStream, length: Duration) -> bool {
    let begin = Instant::now();
    let mut buffer = [0; 64 * 1024];
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    while begin.elapsed() < length {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Err(_) => return true,
        }
    }
    false
}

/// Makes many requests on a few connections, without waiting for responses.
pub(super) fn send_requests(address: SocketAddr, frame: fn(u32, &str) -> Vec<u8>, key: &str) {
    on_connections(|number| requests_of_one(address, number, frame, key));
}

fn requests_of_one(address: SocketAddr, number: u8, frame: fn(u32, &str) -> Vec<u8>, key: &str) {
    let Ok(mut stream) = http2::open(address, source(12, number)) else {
        return;
    };
    let reader = stream.try_clone();
    let drained = std::thread::spawn(move || {
        reader.is_ok_and(|mut reader| drain(&mut reader, Duration::from_secs(2)))
    });
    for nth in 0..REQUESTS {
        if stream.write_all(&frame(nth, key)).is_err() {
            break;
        }
    }
    let _ = drained.join();
}

/// Sends the same requests of HTTP/1 again and again on a few connections, without waiting for responses.
pub(super) fn send_pipelined(address: SocketAddr, requests: &[u8]) {
    on_connections(|number| pipelined_of_one(address, number, requests));
}

fn pipelined_of_one(address: SocketAddr, number: u8, requests: &[u8]) {
    let Ok(mut stream) = connect(address, source(13, number)) else {
        return;
    };
    let reader = stream.try_clone();
    let drained = std::thread::spawn(move || {
        reader.is_ok_and(|mut reader| drain(&mut reader, Duration::from_secs(2)))
    });
    let begin = Instant::now();
    for _ in 0..100 {
        if begin.elapsed() > LENGTH || stream.write_all(requests).is_err() {
            break;
        }
    }
    let _ = drained.join();
}

/// Names many clients, on a few connections that are kept.
pub(super) fn send_keys(address: SocketAddr, line: &[u8], word: Word) {
    let begin = Instant::now();
    on_connections(|connection| {
        let Ok(mut stream) = connect(address, source(14, connection)) else {
            return;
        };
        let mut number = usize::from(connection);
        while number < KEYS && begin.elapsed() < LENGTH * 2 {
            let line =
                String::from_utf8_lossy(&fill(line, word, 0)).replace("{n}", &number.to_string());
            let request = format!("GET /key HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n");
            number += usize::from(CONNECTIONS);
            if stream.write_all(request.as_bytes()).is_err()
                || http1::read_response(&mut stream).status.is_none()
            {
                let Ok(another) = connect(address, source(14, connection)) else {
                    return;
                };
                stream = another;
            }
        }
    });
}

pub(super) fn request_of(line: &[u8]) -> Vec<u8> {
    [
        b"GET /open HTTP/1.1\r\nHost: a\r\n",
        line,
        b"\r\nConnection: close\r\n\r\n",
    ]
    .concat()
}

/// Opens connections from many addresses, and keeps them for a while.
pub(super) fn hold(address: SocketAddr, count: usize, bytes: &[u8]) {
    let streams = open_many(address, count);
    for mut stream in &streams {
        let _ = stream.write_all(bytes);
    }
    std::thread::sleep(Duration::from_secs(2));
    drop(streams);
}

pub(super) fn send_slowly(address: SocketAddr, count: usize, bytes: &[u8]) {
    let streams = open_many(address, count);
    for byte in bytes.chunks(1) {
        for mut stream in &streams {
            let _ = stream.write_all(byte);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Connections from as many addresses. Those that cannot be made are left out: a listener may shed them.
fn open_many(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let source = |number: usize| {
        source(
            u8::try_from(15 + number / 250).unwrap_or(u8::MAX),
            u8::try_from(number % 250).unwrap_or(0),
        )
    };
    (0..count)
        .filter_map(|number| connect(address, source(number)).ok())
        .collect()
}

/// Asks for much on many streams, with no window for any of it.
pub(super) fn leave_unread(address: SocketAddr) {
    let window = frames::frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let field = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    let head = [
        field(":method", "GET"),
        field(":scheme", "http"),
        field(":path", "/big"),
        field(":authority", "a"),
        field("x-api-key", "key-roomy"),
    ];
    let block = frames::block(&head);
    let mut streams = Vec::new();
    for number in 0..11 {
        let Ok(mut stream) = http2::open(address, source(20, number)) else {
            continue;
        };
        let heads = (0..100)
            .flat_map(|nth| frames::frame(HEADERS, END_HEADERS | END_STREAM, 2 * nth + 1, &block));
        let _ = stream.write_all(&window.iter().copied().chain(heads).collect::<Vec<u8>>());
        streams.push(stream);
    }
    std::thread::sleep(Duration::from_secs(3));
    drop(streams);
}
