//! Requests as bytes: nothing between a list and the socket corrects them.

pub(crate) mod frames;
pub(crate) mod grpc;
pub(crate) mod http1;
pub(crate) mod http2;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// How long a request may take. The gateways here end slow requests after two seconds.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// What came back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// `None` if the connection ended or time ran out first.
    pub(crate) status: Option<u16>,
    pub(crate) body: Vec<u8>,
}

/// Connects from an address of this machine.
pub(crate) fn connect(target: SocketAddr, source: Ipv4Addr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect_timeout(&target.into(), TIMEOUT)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}
