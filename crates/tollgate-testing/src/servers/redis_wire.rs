//! A wire to a Redis server that can stop carrying what is sent to it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;

use super::RedisServer;

/// A socket file in front of a [`RedisServer`]. Ended with the test.
#[derive(Debug)]
pub struct RedisWire {
    folder: TempDir,
    budget: Arc<Budget>,
}

/// How many writes to the server are carried before the wire stops; `None` for all.
#[derive(Debug, Default)]
struct Budget {
    left: Mutex<Option<u32>>,
    changed: Condvar,
}

impl RedisWire {
    /// A wire that carries everything.
    #[must_use]
    pub fn to(server: &RedisServer) -> Self {
        let wire = Self {
            folder: tempfile::tempdir().unwrap(),
            budget: Arc::default(),
        };
        let listener = UnixListener::bind(wire.socket()).unwrap();
        let (server, budget) = (server.socket(), Arc::clone(&wire.budget));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), UnixStream::connect(&server).unwrap());
                let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let budget = Arc::clone(&budget);
                thread::spawn(move || carry(client, server, || budget.spend()));
                thread::spawn(move || carry(ends.1, ends.0, || {}));
            }
        });
        wire
    }

    /// The URL of its end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Carries this many writes of clients from now on, and holds those after that. A call of a client is one write.
    pub fn stop_after(&self, writes: u32) {
        *self.budget.left.lock() = Some(writes);
    }

    /// Carries everything from now on, and what was held first.
    pub fn go_on(&self) {
        *self.budget.left.lock() = None;
        self.budget.changed.notify_all();
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("wire")
    }
}

impl Budget {
    fn spend(&self) {
        let mut left = self.left.lock();
        while *left == Some(0) {
            self.changed.wait(&mut left);
        }
        *left = left.map(|left| left - 1);
    }
}

fn carry(mut from: UnixStream, mut to: UnixStream, before_each: impl Fn()) {
    let mut bytes = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        before_each();
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
