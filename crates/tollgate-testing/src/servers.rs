//! Real servers, started by the tests.

pub mod postgres;
pub mod redis;
pub mod redis_wire;

pub use postgres::PostgresServer;
pub use redis::{RedisAddress, RedisServer};
pub use redis_wire::RedisWire;
