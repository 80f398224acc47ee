//! Ports for programs that cannot report which one they took.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Mutex;

/// Ports start here and end 10,000 higher: these, and the bus ports of a Redis Cluster, 10,000 higher again, are below those that
/// the system assigns by itself.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;

/// What reserves the ports of this process. Tests choose ports at the same time, and a port is free until its server listens.
static CLAIMS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A free port that no other test gets while this process lives.
#[must_use]
pub fn free_port() -> u16 {
    let folder: PathBuf = std::env::temp_dir().join("tollgate-test-ports");
    std::fs::create_dir_all(&folder).unwrap();
    loop {
        let assigned = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = FIRST + assigned.local_addr().unwrap().port() % COUNT;
        let claim = File::create(folder.join(port.to_string())).unwrap();
        let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if claim.try_lock().is_ok() && is_free(port) && is_free(port + COUNT) {
            CLAIMS.lock().unwrap().push(claim);
            return port;
        }
    }
}

/// An address at which nothing listens.
#[must_use]
pub fn closed_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}
