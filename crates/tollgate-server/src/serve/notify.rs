//! Telling systemd how the program is, if it was started by it (sd_notify).

use std::io;
use std::os::unix::net::UnixDatagram;

/// Says this to whoever asked to be told. Nobody did, usually; and if it cannot be said, the program runs all the same.
pub(super) fn tell(words: &str) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(words, &path)
    {
        tracing::warn!(%error, "cannot tell systemd how the program is");
    }
}

fn send(words: &str, path: &std::ffi::OsStr) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    let socket = UnixDatagram::unbound()?;
    match path.as_bytes().strip_prefix(b"@") {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt as _;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            socket.send_to_addr(words.as_bytes(), &address)?;
        }
        _ => {
            socket.send_to(words.as_bytes(), path)?;
        }
    }
    Ok(())
}
