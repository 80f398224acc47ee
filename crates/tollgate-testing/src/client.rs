//! HTTP/1.1 clients that send exactly what a test says: one request and its response ([`get`], [`request`], [`send`]), or a
//! [`Connection`] for several.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream as BlockingStream};

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::wait::TIMEOUT;

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The head as it came, status line included.
    pub head: String,
    /// The body, without chunks.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a header; the first if there are several.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).first().copied()
    }

    /// All values of a header, in their order.
    #[must_use]
    pub fn headers(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines
            .filter(|(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The first response of these bytes, and its length, if all of it is there. Interim responses count as responses. Without a
    /// length, the body ends with the bytes if `is_end`.
    #[must_use]
    pub fn parse(bytes: &[u8], is_end: bool) -> Option<(Self, usize)> {
        let head_end = bytes.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let mut response = Self {
            status,
            head,
            body: Vec::new(),
        };
        let rest = &bytes[head_end..];
        let has_body = status >= 200 && !matches!(status, 204 | 304);
        let length = response.header("content-length").map(str::parse);
        let used = match length {
            _ if !has_body => 0,
            Some(length) => {
                let length = length.unwrap();
                response.body = rest.get(..length)?.to_vec();
                length
            }
            None if response.header("transfer-encoding") == Some("chunked") => {
                let (body, used) = chunked(rest)?;
                response.body = body;
                used
            }
            None if is_end => {
                response.body = rest.to_vec();
                rest.len()
            }
            None => return None,
        };
        Some((response, head_end + used))
    }

    /// All responses of a connection that has ended.
    #[must_use]
    pub fn parse_all(mut bytes: &[u8]) -> Vec<Self> {
        let mut all = Vec::new();
        while let Some((response, used)) = Self::parse(bytes, true) {
            all.push(response);
            bytes = &bytes[used..];
        }
        let rest = String::from_utf8_lossy(bytes);
        assert!(rest.is_empty(), "after {all:?}: {rest:?}");
        all
    }
}

/// The body of a chunked message, and how many bytes it takes with its trailers.
fn chunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut rest) = (Vec::new(), bytes);
    let line = |rest: &[u8]| rest.windows(2).position(|part| part == b"\r\n");
    loop {
        let end = line(rest)?;
        let size = std::str::from_utf8(&rest[..end]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            break;
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
    // Trailers end with an empty line.
    loop {
        let end = line(rest)?;
        rest = &rest[end + 2..];
        if end == 0 {
            return Some((body, bytes.len() - rest.len()));
        }
    }
}

/// The response to one GET on a connection of its own.
#[must_use]
pub fn get(at: SocketAddr, path: &str) -> Response {
    request(at, "GET", path, &[], "").unwrap()
}

/// The response to one request on a connection of its own. `headers` are whole lines; a `Host` among them replaces the default.
///
/// # Errors
/// If the connection fails, or ends before the response does.
pub fn request(
    at: SocketAddr,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &str,
) -> io::Result<Response> {
    request_from(Ipv4Addr::LOCALHOST.into(), at, method, path, headers, body)
}

/// The same as [`request`] from another address of this machine, such as 127.0.0.2.
///
/// # Errors
/// If the connection fails, or ends before the response does.
pub fn request_from(
    from: IpAddr,
    at: SocketAddr,
    method: &str,
    path: &str,
    headers: &[&str],
    body: &str,
) -> io::Result<Response> {
    let is_host = |line: &&&str| line.to_ascii_lowercase().starts_with("host:");
    let host = match headers.iter().find(is_host) {
        Some(_) => String::new(),
        None => format!("host: {at}\r\n"),
    };
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\n{host}connection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    );
    let bytes = exchange_from(from, at, request.as_bytes())?;
    let is_head = method == "HEAD";
    let parsed = match is_head {
        true => head_alone(&bytes),
        false => final_response(&bytes),
    };
    let incomplete =
        || io::Error::other(format!("incomplete: {}", String::from_utf8_lossy(&bytes)));
    parsed.ok_or_else(incomplete)
}

/// The first response that is not an interim one.
fn final_response(mut bytes: &[u8]) -> Option<Response> {
    loop {
        let (response, used) = Response::parse(bytes, true)?;
        if response.status >= 200 {
            return Some(response);
        }
        bytes = &bytes[used..];
    }
}

/// The response to a HEAD request, whose Content-Length belongs to another body.
fn head_alone(bytes: &[u8]) -> Option<Response> {
    let head = String::from_utf8_lossy(bytes).into_owned();
    let head_end = head.find("\r\n\r\n")? + 4;
    assert_eq!(head.len(), head_end, "a body after HEAD: {head}");
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Response {
        status,
        head,
        body: Vec::new(),
    })
}

/// Sends these bytes on a connection of their own, and returns the response. The server must close the connection.
#[must_use]
pub fn send(at: SocketAddr, bytes: &[u8]) -> Response {
    let received = exchange(at, bytes);
    final_response(&received)
        .unwrap_or_else(|| panic!("no response: {}", String::from_utf8_lossy(&received)))
}

/// Sends these bytes on a connection of their own, and returns everything that comes back.
#[must_use]
pub fn exchange(at: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    exchange_from(Ipv4Addr::LOCALHOST.into(), at, bytes).unwrap()
}

fn exchange_from(from: IpAddr, at: SocketAddr, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = connect_from(from, at)?;
    // The server may have read enough before all is sent.
    let _ = stream.write_all(bytes);
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        // What came before a reset counts.
        Err(error) if received.is_empty() => Err(error),
        _ => Ok(received),
    }
}

/// A blocking connection from an address of this machine, such as 127.0.0.2.
///
/// # Errors
/// If the connection fails.
pub fn connect_from(from: IpAddr, to: SocketAddr) -> io::Result<BlockingStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    if from.is_ipv4() == to.is_ipv4() {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    socket.connect(&to.into())?;
    let stream = BlockingStream::from(socket);
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// An HTTP/1.1 connection, TCP unless said otherwise.
#[derive(Debug)]
pub struct Connection<S = TcpStream> {
    /// The connection itself.
    pub stream: S,
    received: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub async fn open(at: SocketAddr) -> Self {
        Self::over(TcpStream::connect(at).await.unwrap())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// HTTP over a stream that is connected already.
    pub fn over(stream: S) -> Self {
        Self {
            stream,
            received: Vec::new(),
        }
    }

    /// Sends bytes.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends bytes, although the server may have closed the connection.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// Sends a request, and returns its response.
    pub async fn request(&mut self, bytes: impl AsRef<[u8]>) -> Response {
        self.send(bytes).await;
        self.response().await.expect("a response to each request")
    }

    /// The next response; `None` if the connection ended before it.
    pub async fn response(&mut self) -> Option<Response> {
        loop {
            if let Some((response, used)) = Response::parse(&self.received, false) {
                self.received.drain(..used);
                return Some(response);
            }
            if self.read().await == 0 {
                return None;
            }
        }
    }

    /// The bytes up to and with this text.
    pub async fn read_until(&mut self, end: &str) -> String {
        loop {
            let mut parts = self.received.windows(end.len());
            if let Some(at) = parts.position(|part| part == end.as_bytes()) {
                let rest = self.received.split_off(at + end.len());
                let read = std::mem::replace(&mut self.received, rest);
                return String::from_utf8(read).unwrap();
            }
            let so_far = String::from_utf8_lossy(&self.received).into_owned();
            assert!(self.read().await > 0, "ended before {end:?}: {so_far}");
        }
    }

    /// All bytes until the connection ends.
    pub async fn bytes_to_end(&mut self) -> Vec<u8> {
        let mut received = std::mem::take(&mut self.received);
        let reading = self.stream.read_to_end(&mut received);
        // What came before a reset counts.
        let _ = tokio::time::timeout(TIMEOUT, reading)
            .await
            .expect("the connection ends in time");
        received
    }

    /// All bytes until the connection ends, as text.
    pub async fn text_to_end(mut self) -> String {
        String::from_utf8_lossy(&self.bytes_to_end().await).into_owned()
    }

    /// All responses until the connection ends.
    pub async fn responses(&mut self) -> Vec<Response> {
        Response::parse_all(&self.bytes_to_end().await)
    }

    /// Reads more. Returns 0 if the connection has ended.
    async fn read(&mut self) -> usize {
        let mut part = [0; 16_384];
        let reading = tokio::time::timeout(TIMEOUT, self.stream.read(&mut part));
        match reading.await.expect("something comes in time") {
            Ok(count) => {
                self.received.extend_from_slice(&part[..count]);
                count
            }
            Err(_) => 0,
        }
    }
}

/// Connects, sends these bytes, and returns all responses until the connection ends.
pub async fn responses_to(at: SocketAddr, bytes: impl AsRef<[u8]>) -> Vec<Response> {
    let mut connection = Connection::open(at).await;
    connection.try_send(bytes).await;
    connection.responses().await
}

/// The response to one GET on a connection of its own, without blocking other tasks.
pub async fn fetch(at: SocketAddr, path: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    let mut responses = responses_to(at, request).await;
    assert_eq!(responses.len(), 1, "{path}: {responses:?}");
    responses.remove(0)
}
