//! The layer in a real tonic server, asked by a real client.

use tokio::net::TcpListener;
use tollgate::Dimension;
use tollgate_tower::TollgateLayer;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::served::{hand, limiter, rule};

async fn served(layer: TollgateLayer) -> HealthClient<Channel> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(channel.connect().await.unwrap())
}

fn by_address(limit: &str) -> TollgateLayer {
    let rule = rule("client", limit).per([Dimension::Client]);
    TollgateLayer::new(limiter(&hand(), [rule]))
        .peer_from(|extensions| extensions.get::<TcpConnectInfo>()?.remote_addr())
}

#[tokio::test]
async fn a_denial_is_resource_exhausted_with_the_time_to_come_back() {
    let mut client = served(by_address("1/m burst 1")).await;
    let passed = client.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(passed.metadata().get("x-ratelimit-remaining").unwrap(), "0");
    let status = client
        .check(HealthCheckRequest::default())
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(
        status.message(),
        "A limit has no room for this request. Try again in 60 seconds."
    );
    let told = |name| status.metadata().get(name).unwrap().to_str().unwrap();
    assert_eq!(told("grpc-retry-pushback-ms"), "60000");
    assert_eq!(told("retry-after"), "60");
    assert_eq!(told("ratelimit"), r#""client";r=0;t=60"#);
}

#[tokio::test]
async fn a_call_that_cannot_wait_for_its_turn_is_told_so_at_once() {
    let mut client = served(by_address("1/m queue 3")).await;
    client.check(HealthCheckRequest::default()).await.unwrap();
    let mut impatient = Request::new(HealthCheckRequest::default());
    impatient.set_timeout(std::time::Duration::from_secs(20));
    let status = client.check(impatient).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let told = status.metadata().get("grpc-retry-pushback-ms").unwrap();
    // Its turn is in a minute, and it has at most 20 seconds, less what it took to get here.
    let ms: u64 = told.to_str().unwrap().parse().unwrap();
    assert!((40_000..60_000).contains(&ms), "{ms}");
}
