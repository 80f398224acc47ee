//! A unary gRPC call: reads the message from its frame, and writes the response with its trailers.
//!
//! tonic responds to every unreadable message with a gRPC error, and Envoy admits a request for which it gets one.

use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use prost::Message;

use super::refusal::CallRefusal;

/// Maximum size of a message. Envoy accepts 60 KiB of headers by default, and a call has a copy of a header in each descriptor that
/// names it.
pub(super) const MAX_MESSAGE_BYTES: usize = 4 * 1_024 * 1_024;

/// How long a message may take to arrive.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Size of a flag and the length of the message.
const PREFIX_BYTES: usize = 5;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Reads the message of a call.
pub(super) async fn read_message<M: Message + Default>(body: Body) -> Result<M, CallRefusal> {
    let body = match tokio::time::timeout(TIMEOUT, read_body(body)).await {
        Ok(body) => body?,
        Err(_) => return Err(CallRefusal::TooSlow),
    };
    let (prefix, message) = (body.split_at_checked(PREFIX_BYTES)).ok_or(CallRefusal::Malformed)?;
    let [flag, length @ ..] = prefix else {
        return Err(CallRefusal::Malformed);
    };
    let length = length
        .iter()
        .fold(0, |all, byte| all << 8 | usize::from(*byte));
    match flag {
        0 if length == message.len() => M::decode(message).map_err(|_| CallRefusal::Malformed),
        1 => Err(CallRefusal::Compressed),
        _ => Err(CallRefusal::Malformed),
    }
}

/// Reads the body. If it is too large, it is still read to its end, because some clients treat a response before the end of the call as an
/// error.
async fn read_body(mut body: Body) -> Result<Bytes, CallRefusal> {
    let mut whole = BytesMut::new();
    let mut is_too_large = false;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| CallRefusal::Malformed)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        is_too_large |= whole.len() + data.len() > PREFIX_BYTES + MAX_MESSAGE_BYTES;
        if is_too_large {
            whole = BytesMut::new();
        } else {
            whole.extend_from_slice(&data);
        }
    }
    match is_too_large {
        true => Err(CallRefusal::TooLarge),
        false => Ok(whole.freeze()),
    }
}

pub(super) fn response(message: &impl Message) -> Response<Body> {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + length);
    frame.put_u8(0);
    // A few kilobytes.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut frame);
    let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
    let frames = [Frame::data(frame.freeze()), Frame::trailers(trailers)];
    let frames = frames.map(Ok::<_, std::convert::Infallible>);
    let mut response = Response::new(Body::new(StreamBody::new(stream::iter(frames))));
    *response.status_mut() = StatusCode::OK;
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::super::generated::envoy::service::ratelimit::v3::RateLimitRequest;
    use super::*;

    fn read(body: impl Into<Body>) -> Result<RateLimitRequest, CallRefusal> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(read_message(body.into()))
    }

    fn framed(flag: u8, length: u32, message: &[u8]) -> Vec<u8> {
        [&[flag], length.to_be_bytes().as_slice(), message].concat()
    }

    #[test]
    fn a_message_is_read_from_its_frame() {
        let asked = RateLimitRequest {
            domain: b"envoy".to_vec(),
            ..RateLimitRequest::default()
        };
        let message = asked.encode_to_vec();
        let length = u32::try_from(message.len()).unwrap();
        assert_eq!(read(framed(0, length, &message)), Ok(asked));
        assert_eq!(read(framed(0, 0, b"")), Ok(RateLimitRequest::default()));
    }

    #[test]
    fn an_unreadable_message_is_refused_with_the_reason() {
        let over = MAX_MESSAGE_BYTES + 1;
        let cases = [
            (Vec::new(), CallRefusal::Malformed),
            (vec![0, 0, 0], CallRefusal::Malformed),
            (framed(0, 2, b"\x0a"), CallRefusal::Malformed),
            (framed(0, 0, b"\x0a\x00"), CallRefusal::Malformed),
            (framed(0, 1, b"\xff"), CallRefusal::Malformed),
            (framed(0, u32::MAX, b""), CallRefusal::Malformed),
            (framed(1, 0, b""), CallRefusal::Compressed),
            (framed(2, 0, b""), CallRefusal::Malformed),
            (
                framed(0, u32::try_from(over).unwrap(), &vec![0; over]),
                CallRefusal::TooLarge,
            ),
        ];
        for (body, why) in cases {
            let shown = body.get(..8.min(body.len())).map(<[u8]>::to_vec);
            assert_eq!(read(body), Err(why), "{shown:?}");
        }
    }
}
