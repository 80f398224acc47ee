//! One unary gRPC call: the message out of its frame, and the response with its trailers.
//!
//! Read here rather than by tonic, which answers every message it cannot read with an error of its own: Envoy admits a request for which
//! it gets an error.

use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use prost::Message;

/// Largest message that is decoded. Envoy accepts 60 KiB of headers by default, and a call has a copy of a header in each descriptor that
/// names it.
pub(super) const MAX_MESSAGE_BYTES: usize = 4 * 1_024 * 1_024;

/// How long a message may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// A flag and the length of the message.
const PREFIX_BYTES: usize = 5;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Why there is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is larger than [`MAX_MESSAGE_BYTES`].
    TooLarge,
    /// It is compressed.
    Compressed,
    /// It is not one message of this kind.
    Malformed,
    /// It did not arrive in time.
    TooSlow,
}

/// The one message of a call.
pub(super) async fn message<M: Message + Default>(body: Body) -> Result<M, Unreadable> {
    let body = match tokio::time::timeout(PATIENCE, whole(body)).await {
        Ok(body) => body?,
        Err(_) => return Err(Unreadable::TooSlow),
    };
    let (prefix, message) = (body.split_at_checked(PREFIX_BYTES)).ok_or(Unreadable::Malformed)?;
    let [flag, length @ ..] = prefix else {
        return Err(Unreadable::Malformed);
    };
    let length = length
        .iter()
        .fold(0, |all, byte| all << 8 | usize::from(*byte));
    match flag {
        0 if length == message.len() => M::decode(message).map_err(|_| Unreadable::Malformed),
        1 => Err(Unreadable::Compressed),
        _ => Err(Unreadable::Malformed),
    }
}

/// The body. One that is too large is read to its end all the same: a response that comes before the end of its call would be an error to
/// some callers.
async fn whole(mut body: Body) -> Result<Bytes, Unreadable> {
    let mut whole = BytesMut::new();
    let mut is_too_large = false;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Unreadable::Malformed)?;
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
        true => Err(Unreadable::TooLarge),
        false => Ok(whole.freeze()),
    }
}

/// The response to a call that went well.
pub(super) fn response(message: &impl Message) -> Response<Body> {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + length);
    frame.put_u8(0);
    // Ours are a few kilobytes.
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

    fn read(body: impl Into<Body>) -> Result<RateLimitRequest, Unreadable> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(message(body.into()))
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
    fn what_is_no_message_is_named() {
        let over = MAX_MESSAGE_BYTES + 1;
        let cases = [
            (Vec::new(), Unreadable::Malformed),
            (vec![0, 0, 0], Unreadable::Malformed),
            (framed(0, 2, b"\x0a"), Unreadable::Malformed),
            (framed(0, 0, b"\x0a\x00"), Unreadable::Malformed),
            (framed(0, 1, b"\xff"), Unreadable::Malformed),
            (framed(0, u32::MAX, b""), Unreadable::Malformed),
            (framed(1, 0, b""), Unreadable::Compressed),
            (framed(2, 0, b""), Unreadable::Malformed),
            (
                framed(0, u32::try_from(over).unwrap(), &vec![0; over]),
                Unreadable::TooLarge,
            ),
        ];
        for (body, why) in cases {
            let shown = body.get(..8.min(body.len())).map(<[u8]>::to_vec);
            assert_eq!(read(body), Err(why), "{shown:?}");
        }
    }
}
