//! Notifications to systemd about the state of the program (sd_notify).

use std::io;
use std::os::unix::net::UnixDatagram;

/// Sends a state to the service manager, if one asked for it. A failure is logged and changes nothing.
pub(super) fn send(state: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send_to(state, &path)
    {
        tracing::warn!(%error, "failed to notify systemd");
    }
}

fn send_to(state: &str, path: &std::ffi::OsStr) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    let socket = UnixDatagram::unbound()?;
    match path.as_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt as _;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            socket.send_to_addr(state.as_bytes(), &address)?;
        }
        _ => {
            socket.send_to(state.as_bytes(), path)?;
        }
    }
    Ok(())
}
