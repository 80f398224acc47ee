//! An axum server whose callers get 5 requests at once and one a second, by their addresses; reports cost more.
//!
//! `cargo run -p tollgate-tower --example axum`, and try the lines it prints.

#![allow(clippy::print_stdout, reason = "it is a program for people")]

use std::error::Error;
use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Extension, Router};
use tokio::net::TcpListener;
use tollgate::{Dimension, Limiter, Match, Rule};
use tollgate_tower::TollgateLayer;
use tollgate_tower::layer::Decided;

/// Handlers see what was decided.
async fn hello(Extension(decided): Extension<Decided>) -> String {
    let left = decided.remaining().unwrap_or_default();
    format!("hello, {left} left\n")
}

fn app() -> Result<Router, Box<dyn Error>> {
    let client = Rule::new("client", "1/s burst 5".parse()?)?.per([Dimension::Client]);
    let slow = Rule::new("slow", "1/s queue 10".parse()?)?
        .when(Match::new().path("/slow".parse()?))
        .per([Dimension::Client]);
    let limiter = Limiter::in_memory().with_rules([client, slow])?;
    let layer = TollgateLayer::new(limiter)
        .peer_from(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0))
        .cost(|parts| (parts.uri.path() == "/report").then_some(3));
    Ok(Router::new()
        .route("/", get(hello))
        .route("/report", get(hello))
        .route("/slow", get(hello))
        .layer(layer))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    println!("Try, several times in a row:");
    println!("  curl -i http://{address}/         one of five, which come back one a second");
    println!("  curl -i http://{address}/report   three of five");
    println!("  curl -i http://{address}/slow     one a second, and the others wait their turn");
    println!("  curl -I http://{address}/         without a body");
    println!("Stop it with Ctrl-C.");
    let service = app()?.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
