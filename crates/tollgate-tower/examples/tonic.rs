//! A tonic server, and a client that calls it until it is told to stop: gRPC callers get `RESOURCE_EXHAUSTED`, and when to come back.
//!
//! `cargo run -p tollgate-tower --example tonic`

#![allow(clippy::print_stdout, reason = "it is a program for people")]

use std::error::Error;

use tokio::net::TcpListener;
use tollgate::{Dimension, Limiter, Rule};
use tollgate_tower::TollgateLayer;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

fn layer() -> Result<TollgateLayer, Box<dyn Error>> {
    let rule = Rule::new("client", "1/s burst 5".parse()?)?.per([Dimension::Client]);
    let limiter = Limiter::in_memory().with_rules([rule])?;
    Ok(TollgateLayer::new(limiter)
        .peer_from(|extensions| extensions.get::<TcpConnectInfo>()?.remote_addr()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer()?).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Channel::from_shared(format!("http://{address}"))?
        .connect()
        .await?;
    let mut client = HealthClient::new(channel);
    for call in 1..=7 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(answer) => {
                let left = answer.metadata().get("x-ratelimit-remaining");
                println!("call {call}: it is well; {left:?} left");
            }
            Err(status) => {
                let wait = status.metadata().get("grpc-retry-pushback-ms");
                println!(
                    "call {call}: {:?}: {}; {wait:?} ms",
                    status.code(),
                    status.message()
                );
            }
        }
    }
    Ok(())
}
