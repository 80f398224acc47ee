//! Commands of the program.

mod check_config;
mod config_files;
mod database;
mod explain;
mod simulate_chart;
mod simulate_csv;
mod simulate_figures;
mod simulate_refusals;
mod usage;
