//! The sockets that the program listens on: handed to it, or opened at the start, all of them before anything runs.
//!
//! They are handed over as systemd does it (LISTEN_FDS, with names in LISTEN_FDNAMES): a socket belongs to the door of its name, or else to
//! the door that is to listen at its address.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use listenfd::ListenFd;
use socket2::SockRef;

use crate::failure::Failure;
use tollgate_config::Config;

/// The name under which the one who hands over waits to hear that all is well.
pub(super) const READY: &str = "tollgate-ready";

/// Callers who may wait to be let in. The standard library asks for 128, which a surge fills at once, and whoever finds it full tries again
/// after a second. The system's own bound (net.core.somaxconn, 4,096 by default) still holds.
const MOST_WAITING: i32 = 65_535;

/// What was handed to this program when it was started.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    sockets: Vec<(String, TcpListener)>,
    ready: Option<UnixStream>,
}

impl Inherited {
    /// Takes what is there. Changes the environment, so nobody else may be looking at it.
    pub(crate) fn take() -> Self {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        let mut handed = ListenFd::from_env();
        let mut inherited = Self::default();
        for nth in 0..handed.len() {
            let name = names.next().unwrap_or_default().to_owned();
            if name == READY {
                // It takes a connection for a listener: both are sockets of one kind.
                let ready = handed.take_unix_listener(nth).ok().flatten();
                inherited.ready = ready.map(|ready| UnixStream::from(OwnedFd::from(ready)));
            } else if let Ok(Some(socket)) = handed.take_tcp_listener(nth) {
                inherited.sockets.push((name, socket));
            }
        }
        inherited
    }

    /// Where this door may listen: where it was handed a socket, at the address that is wanted, or else at one of the system's choice. The socket is kept.
    pub(crate) fn at_or_elsewhere(
        &mut self,
        door: &str,
        wanted: SocketAddr,
    ) -> io::Result<SocketAddr> {
        if let Some((_, socket)) = self.sockets.iter().find(|(name, _)| name == door) {
            return socket.local_addr();
        }
        let elsewhere = SocketAddr::new(wanted.ip(), 0);
        let socket = TcpListener::bind(wanted).or_else(|_| TcpListener::bind(elsewhere))?;
        let address = socket.local_addr()?;
        self.sockets.push((door.to_owned(), socket));
        Ok(address)
    }

    /// The socket for this door, if it was handed over.
    fn for_door(&mut self, door: &str, wanted: SocketAddr) -> Option<TcpListener> {
        let sockets = || self.sockets.iter();
        let is_there = |socket: &TcpListener| socket.local_addr().is_ok_and(|at| at == wanted);
        let by_name = sockets().position(|(name, socket)| {
            // A door that moved in the configuration moves.
            name == door && (wanted.port() == 0 || is_there(socket))
        });
        let by_address = || sockets().position(|(_, socket)| is_there(socket));
        let place = by_name.or_else(by_address)?;
        Some(self.sockets.swap_remove(place).1)
    }

    /// Nobody needs the others.
    pub(super) fn close_rest(&mut self) {
        for (name, socket) in self.sockets.drain(..) {
            let address = socket
                .local_addr()
                .map(|at| at.to_string())
                .unwrap_or_default();
            let name = tollgate_config::text::escaped(&name, 80);
            tracing::warn!(
                name,
                address,
                "a socket was handed over that no door listens on: it is closed"
            );
        }
    }

    /// Whether another program serves until this one is ready.
    pub(super) fn is_handover(&self) -> bool {
        self.ready.is_some()
    }

    /// Tells whoever hands over that all is well.
    pub(super) fn say_ready(&mut self) {
        if let Some(mut ready) = self.ready.take()
            && let Err(error) = ready.write_all(b"ready\n")
        {
            tracing::warn!(%error, "cannot tell the old program that this one is ready");
        }
    }
}

/// All sockets, by the names of their doors. They stay open for as long as this does.
#[derive(Debug)]
pub(super) struct Sockets(Vec<(&'static str, TcpListener)>);

impl Sockets {
    /// Opens those that were not handed over.
    pub(super) fn open(config: &Config, inherited: &mut Inherited) -> Result<Self, Failure> {
        let doors = [
            ("gateway", config.gateway.as_ref().map(|door| door.listen)),
            ("service", config.service.as_ref().map(|door| door.listen)),
            ("admin", config.admin.as_ref().map(|door| door.listen)),
        ];
        let mut sockets = Vec::new();
        for (door, wanted) in doors {
            let Some(wanted) = wanted else { continue };
            let socket = match inherited.for_door(door, wanted) {
                Some(socket) => socket,
                None => TcpListener::bind(wanted).map_err(|error| cannot(door, wanted, &error))?,
            };
            // To listen again changes only how many may wait, also where the socket was handed over.
            let waiting = (SockRef::from(&socket).listen(MOST_WAITING))
                .and_then(|()| socket.set_nonblocking(true));
            waiting.map_err(|error| cannot(door, wanted, &error))?;
            sockets.push((door, socket));
        }
        Ok(Self(sockets))
    }

    /// A socket for this runtime.
    pub(super) fn take(&self, door: &str) -> Result<Option<tokio::net::TcpListener>, Failure> {
        let Some((name, socket)) = self.0.iter().find(|(name, _)| *name == door) else {
            return Ok(None);
        };
        let socket = socket
            .try_clone()
            .and_then(tokio::net::TcpListener::from_std);
        socket
            .map(Some)
            .map_err(|error| Failure::Unavailable(format!("{name} cannot listen: {error}")))
    }

    /// Where each door listens.
    pub(super) fn addresses(&self) -> Vec<(&'static str, SocketAddr)> {
        let sockets = self.0.iter();
        sockets
            .filter_map(|(door, socket)| Some((*door, socket.local_addr().ok()?)))
            .collect()
    }

    /// The same sockets for another program, with their names.
    pub(super) fn to_hand_over(&self) -> io::Result<Vec<(&'static str, OwnedFd)>> {
        let sockets = self.0.iter();
        sockets
            .map(|(door, socket)| Ok((*door, OwnedFd::from(socket.try_clone()?))))
            .collect()
    }
}

fn cannot(door: &str, wanted: SocketAddr, error: &io::Error) -> Failure {
    let help = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "; another program listens there: end it, or choose another port in {door}.listen"
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("; this machine does not have that address: see {door}.listen")
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need the capability CAP_NET_BIND_SERVICE".to_owned()
        }
        _ => String::new(),
    };
    Failure::Unavailable(format!("{door} cannot listen at {wanted}: {error}{help}"))
}
