//! The program, run as people run it: the real binary in a folder of its own.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is test code, helpers included"
)]

mod admin;
mod answers;
mod attack;
mod audit;
mod canary;
mod chart;
mod clients;
mod config;
mod config_check;
mod config_files;
mod config_mistakes;
mod config_random;
mod csv;
mod database;
mod database_commands;
mod database_tls;
mod database_watch;
mod deployed;
mod descriptors;
mod documented;
mod door;
mod explain;
mod figures;
mod gateway;
mod gateway_crowd;
mod gateway_denials;
mod gateway_fields;
mod gateway_forwarding;
mod gateway_identity;
mod gateway_log;
mod gateway_malformed;
mod gateway_names;
mod gateway_preflights;
mod gateway_queue;
mod gateway_rotation;
mod gateway_slow;
mod gateway_stop;
mod gateway_store;
mod gateway_tls;
mod gateway_tunnels;
mod gateway_two;
mod gateway_wire;
mod gateways;
mod listen_plain;
mod listeners;
mod live;
mod metrics;
mod payments;
mod postgres_server;
mod program;
mod proxy;
mod proxy_faults;
mod proxy_health;
mod proxy_interim;
mod proxy_plain;
mod proxy_protocols;
mod proxy_setting;
mod proxy_shares;
mod refusals;
mod serve;
mod served;
mod service;
mod service_openapi;
mod service_rls;
mod service_rls_hostile;
mod service_streams;
mod serving;
mod small_disk;
mod stalls;
mod store_share;
mod told;
mod traces;
mod usage;
