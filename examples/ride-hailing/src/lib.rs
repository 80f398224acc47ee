//! A ride-hailing service as many are built: a pool of threads, a queue before it, and nothing that says no in time.
//!
//! Each request holds a thread for its service time (it sleeps, as one that waits for a database does), so the pool's size and that time are
//! the capacity, whatever the machine. Its weakness is the usual one: whoever has given up is still in the queue, and is still served.

pub mod journal;
pub mod pool;
pub mod server;
