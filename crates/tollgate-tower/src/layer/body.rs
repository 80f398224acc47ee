//! The body of a response: the service's, or our own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a response that came through a [`TollgateService`](super::TollgateService).
    #[derive(Debug)]
    pub struct TollgateBody<B> {
        #[pin]
        origin: Origin<B>,
    }
}

pin_project! {
    #[project = OriginProjected]
    #[derive(Debug)]
    enum Origin<B> {
        Service { #[pin] body: B },
        // Until it is sent.
        Gate { bytes: Option<Bytes> },
    }
}

impl<B> TollgateBody<B> {
    pub(super) fn of_service(body: B) -> Self {
        Self {
            origin: Origin::Service { body },
        }
    }

    pub(super) fn of_gate(bytes: Bytes) -> Self {
        let bytes = (!bytes.is_empty()).then_some(bytes);
        Self {
            origin: Origin::Gate { bytes },
        }
    }
}

impl<B: Body<Data = Bytes>> Body for TollgateBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().origin.project() {
            OriginProjected::Service { body } => body.poll_frame(context),
            OriginProjected::Gate { bytes } => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.origin {
            Origin::Service { body } => body.is_end_stream(),
            Origin::Gate { bytes } => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.origin {
            Origin::Service { body } => body.size_hint(),
            Origin::Gate { bytes } => {
                let len = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(len).unwrap_or(u64::MAX))
            }
        }
    }
}
