//! What reports to the state of a connection: its socket, whose reads and pending writes are noted and which is closed so that
//! the client gets the last response, and the handler, whose requests count until their responses have been sent.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::Handler;
use super::connection_limiter::ConnectionPermit;
use super::state::{ConnectionState, RequestInFlight, ResponseFlow};
use crate::body::{FramePoll, IncomingBody};

/// How many reads of unwanted data are made before other tasks run.
const MAX_READS: usize = 16;

pub(super) struct TrackedStream {
    socket: TcpStream,
    state: Arc<ConnectionState>,
    is_shut_down: bool,
    _permit: ConnectionPermit,
}

impl TrackedStream {
    pub(super) fn new(
        socket: TcpStream,
        state: Arc<ConnectionState>,
        permit: ConnectionPermit,
    ) -> Self {
        Self {
            socket,
            state,
            is_shut_down: false,
            _permit: permit,
        }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Reads until the client has closed its side. If a socket were closed with unread data, the system would send a reset,
    /// which can overtake the response: a client that sends a long body would never see why it was rejected.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut unwanted = [0; 4_096];
        for _ in 0..MAX_READS {
            let mut buffer = ReadBuf::new(&mut unwanted);
            match ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.state.note_read(),
                // The client has closed its side, or has disconnected.
                _ => return Poll::Ready(Ok(())),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        if read.is_ready() {
            self.state.note_read();
        }
        read
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.state.note_write(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, parts);
        self.state.note_write(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has no buffer of its own.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut_down {
            ready!(Pin::new(&mut self.socket).poll_shutdown(context))?;
            self.is_shut_down = true;
            self.state.note_closing();
        }
        self.poll_linger(context)
    }
}

/// Over HTTP/2, bodies are split into parts of at most the size of a frame, so that slow clients are seen to read.
const PART_BYTES: usize = 16 * 1_024;

#[derive(Clone, Debug)]
pub(super) struct TrackedHandler<H> {
    handler: H,
    pub(super) peer: SocketAddr,
    state: Arc<ConnectionState>,
}

impl<H: Handler> TrackedHandler<H> {
    pub(super) fn new(handler: H, peer: SocketAddr, state: Arc<ConnectionState>) -> Self {
        Self {
            handler,
            peer,
            state,
        }
    }

    /// Counts a request as in flight, as soon as it is read.
    pub(super) fn begin_request(&self) -> RequestInFlight {
        self.state.begin_request()
    }

    /// Answers a request, which is in flight until its response has been sent.
    pub(super) async fn handle(
        &self,
        request: Request<IncomingBody>,
        in_flight: RequestInFlight,
    ) -> Response<TrackedBody<H::Body>> {
        let mut response = self.handler.handle(request, self.peer).await;
        let mut flow = None;
        if self.state.is_http2() {
            let flow = flow.insert(ResponseFlow::new(Arc::clone(&self.state)));
            flow.note(!response.body().is_end_stream());
        } else if self.state.is_stopping() {
            close_after(&mut response);
        }
        response.map(|body| TrackedBody {
            body,
            part: Bytes::new(),
            flow,
            in_flight,
        })
    }
}

/// Asks the client to use another connection for its next request, which might be lost on this one.
pub(super) fn close_after<B>(response: &mut Response<B>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
}

pin_project! {
    pub(super) struct TrackedBody<B> {
        #[pin]
        body: B,
        // The rest of a part that was too large.
        part: Bytes,
        flow: Option<ResponseFlow>,
        in_flight: RequestInFlight,
    }
}

impl<B: Body<Data = Bytes>> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> FramePoll<B::Error> {
        let this = self.project();
        let Some(flow) = this.flow else {
            return this.body.poll_frame(context);
        };
        if this.part.is_empty() {
            let polled = this.body.poll_frame(context);
            flow.note(matches!(polled, Poll::Ready(Some(Ok(_)))));
            match ready!(polled).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => *this.part = data,
                Some(Err(other)) => return Poll::Ready(Some(Ok(other))),
                None => return Poll::Ready(None),
            }
        } else {
            flow.note(true);
        }
        let part = this.part.split_to(this.part.len().min(PART_BYTES));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.part.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.part.is_empty() {
            true => self.body.size_hint(),
            // Not needed after the first part.
            false => SizeHint::default(),
        }
    }
}
