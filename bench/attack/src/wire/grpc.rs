//! gRPC to Envoy's rate limit service, with messages that are written by hand: a generated type cannot hold text that is none.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::Result;

const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What a call was answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Ok,
    OverLimit,
    /// A status of gRPC or HTTP, or no answer: what Envoy takes for an error.
    Error(String),
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Channel {
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
    token: String,
}

impl Channel {
    pub(crate) async fn open(address: SocketAddr, token: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = TokioIo::new(stream);
        let (sender, connection) = handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(connection);
        Ok(Self {
            sender,
            address,
            token: token.to_owned(),
        })
    }

    /// Whether another call can be made on it.
    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    pub(crate) async fn call(&mut self, call: &Call) -> Answered {
        let answer = tokio::time::timeout(Duration::from_secs(10), self.exchange(call)).await;
        match answer {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => Answered::Error(error.to_string()),
            Err(_) => Answered::Error("no answer within 10 s".to_owned()),
        }
    }

    async fn exchange(&mut self, call: &Call) -> Result<Answered> {
        let message = call.encode();
        let length = u32::try_from(message.len())?.to_be_bytes();
        let body = [&[0][..], &length, &message].concat();
        let request = hyper::Request::post(format!("http://{}{METHOD}", self.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("authorization", format!("Bearer {}", self.token))
            .body(Full::new(Bytes::from(body)))?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?;
        let in_trailers = body
            .trailers()
            .and_then(|trailers| trailers.get("grpc-status"));
        let status = in_trailers.or(head.headers.get("grpc-status")).cloned();
        match status {
            Some(status) if status == "0" && head.status == 200 => {
                Ok(overall_code(&body.to_bytes()))
            }
            Some(status) => {
                let message = head.headers.get("grpc-message");
                Ok(Answered::Error(format!(
                    "grpc-status {status:?}, {message:?}"
                )))
            }
            None => Ok(Answered::Error(format!(
                "status {}, no grpc-status",
                head.status
            ))),
        }
    }
}

/// The first field of a `RateLimitResponse`, behind the five bytes that frame it.
fn overall_code(body: &[u8]) -> Answered {
    match body.get(5..7) {
        Some([0x08, 1]) => Answered::Ok,
        Some([0x08, 2]) => Answered::OverLimit,
        _ => Answered::Error("a response without a code".to_owned()),
    }
}

/// An encoded `RateLimitRequest` in parts.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    domain: Vec<u8>,
    descriptors: Vec<Descriptor>,
    hits: Option<u64>,
    raw: Vec<u8>,
}

impl Call {
    pub(crate) fn of(descriptors: impl IntoIterator<Item = Descriptor>) -> Self {
        Self {
            domain: b"envoy".to_vec(),
            descriptors: descriptors.into_iter().collect(),
            hits: None,
            raw: Vec::new(),
        }
    }

    pub(crate) fn and(mut self, descriptor: Descriptor) -> Self {
        self.descriptors.push(descriptor);
        self
    }

    pub(crate) fn domain(mut self, domain: &[u8]) -> Self {
        self.domain = domain.to_vec();
        self
    }

    pub(crate) fn hits(mut self, hits: u64) -> Self {
        self.hits = Some(hits);
        self
    }

    /// Bytes behind everything else.
    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.raw = bytes.to_vec();
        self
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut message = Vec::new();
        put_bytes(1, &self.domain, &mut message);
        for descriptor in &self.descriptors {
            put_bytes(2, &descriptor.0, &mut message);
        }
        if let Some(hits) = self.hits {
            put_number(3, hits, &mut message);
        }
        message.extend_from_slice(&self.raw);
        message
    }
}

/// An encoded `RateLimitDescriptor`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Descriptor(Vec<u8>);

/// Hits of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hits {
    Of(u64),
    /// One, to be given back.
    Negative,
}

impl Descriptor {
    pub(crate) fn of<'a>(entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let entries = entries.into_iter();
        entries.fold(Self::default(), |descriptor, (key, value)| {
            descriptor.entry(key, value)
        })
    }

    pub(crate) fn entry(self, key: &str, value: &[u8]) -> Self {
        self.raw_entry(key.as_bytes(), value)
    }

    pub(crate) fn raw_entry(mut self, key: &[u8], value: &[u8]) -> Self {
        let mut entry = Vec::new();
        put_bytes(1, key, &mut entry);
        put_bytes(2, value, &mut entry);
        put_bytes(1, &entry, &mut self.0);
        self
    }

    pub(crate) fn limit(mut self, requests: u32, unit: u64) -> Self {
        let mut limit = Vec::new();
        put_number(1, u64::from(requests), &mut limit);
        put_number(2, unit, &mut limit);
        put_bytes(2, &limit, &mut self.0);
        self
    }

    pub(crate) fn hits(mut self, hits: Hits) -> Self {
        let number = match hits {
            Hits::Of(number) => number,
            Hits::Negative => 1,
        };
        let mut wrapped = Vec::new();
        put_number(1, number, &mut wrapped);
        put_bytes(3, &wrapped, &mut self.0);
        if matches!(hits, Hits::Negative) {
            put_number(4, 1, &mut self.0);
        }
        self
    }
}

fn put_bytes(tag: u8, bytes: &[u8], message: &mut Vec<u8>) {
    message.push(tag << 3 | 2);
    put_varint(bytes.len() as u64, message);
    message.extend_from_slice(bytes);
}

fn put_number(tag: u8, number: u64, message: &mut Vec<u8>) {
    message.push(tag << 3);
    put_varint(number, message);
}

fn put_varint(mut number: u64, message: &mut Vec<u8>) {
    let low = |number: u64| u8::try_from(number & 0x7f).unwrap_or_default();
    while number >= 0x80 {
        message.push(low(number) | 0x80);
        number >>= 7;
    }
    message.push(low(number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_encoded_as_protobuf() {
        let call = Call::of([Descriptor::of([("k", &b"\xff"[..])])]).hits(300);
        let expected = b"\x0a\x05envoy\x12\x08\x0a\x06\x0a\x01k\x12\x01\xff\x18\xac\x02";
        assert_eq!(call.encode(), expected);
    }
}
