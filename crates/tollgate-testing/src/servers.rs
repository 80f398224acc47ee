//! Real servers, started by the tests.

pub mod postgres;
pub mod redis;

pub use postgres::PostgresServer;
pub use redis::RedisServer;
