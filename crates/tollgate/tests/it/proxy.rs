//! A wire between a store and its server that can be bad in every way wires are.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// What the wire does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Good,
    /// Every answer comes so much later.
    Slow(Duration),
    /// The first answer on each connection comes so much later.
    SlowAtFirst(Duration),
    /// Nothing arrives, in either direction, and nobody hears of it.
    Dead,
    /// Half of an answer arrives, then the connection is cut.
    CutInReply,
    /// What is asked arrives and is done; the answer does not come back.
    SwallowsReplies,
    /// Answers are replaced by noise.
    Garbage,
}

pub(crate) struct Proxy {
    address: SocketAddr,
    wire: watch::Sender<Wire>,
}

impl Proxy {
    /// Listens on a free port, in front of a server behind a socket file.
    pub(crate) async fn before(server: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (wire, state) = watch::channel(Wire::Good);
        let server = Arc::new(server);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, Arc::clone(&server), state.clone()));
            }
        });
        Self { address, wire }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn becomes(&self, wire: Wire) {
        self.wire.send_replace(wire);
    }
}

async fn carry(client: TcpStream, server: Arc<PathBuf>, state: watch::Receiver<Wire>) {
    client.set_nodelay(true).unwrap();
    let Ok(server) = UnixStream::connect(&*server).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut up = state.clone();
    let asking = tokio::spawn(async move {
        let mut bytes = vec![0; 65_536];
        while let Ok(n @ 1..) = from_client.read(&mut bytes).await {
            // What is sent into a dead wire waits there for ever.
            let _ = up.wait_for(|wire| *wire != Wire::Dead).await;
            if to_server.write_all(&bytes[..n]).await.is_err() {
                break;
            }
        }
    });
    // Answers go their way one behind the other, each after its time: a long wire, not a narrow one.
    let (queue, mut queued) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let answering = tokio::spawn(async move {
        while let Some((due, bytes)) = queued.recv().await {
            tokio::time::sleep_until(due).await;
            if to_client.write_all(&bytes).await.is_err() {
                break;
            }
        }
    });
    let mut down = state;
    let mut bytes = vec![0; 65_536];
    let mut is_first = true;
    while let Ok(n @ 1..) = from_server.read(&mut bytes).await {
        let wire = *down.borrow();
        let mut answer = bytes[..n].to_vec();
        let mut due = Instant::now();
        match wire {
            Wire::Slow(by) => due += by,
            Wire::SlowAtFirst(by) if is_first => due += by,
            Wire::Good | Wire::SlowAtFirst(_) => {}
            Wire::Dead => {
                let _ = down.wait_for(|wire| *wire != Wire::Dead).await;
            }
            Wire::CutInReply => answer.truncate(n / 2),
            Wire::SwallowsReplies => continue,
            Wire::Garbage => answer = b"?!\xff\x00 no redis\r\n\r\n".to_vec(),
        }
        is_first = false;
        if queue.send((due, answer)).is_err() || wire == Wire::CutInReply {
            break;
        }
    }
    drop(queue);
    let _ = answering.await;
    asking.abort();
}
