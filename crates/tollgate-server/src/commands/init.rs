//! `tollgate init`: writes a configuration to start with.

use std::fs::OpenOptions;
use std::io::{self, Write};

use crate::cli::InitArgs;
use crate::failure::Failure;

/// The configuration. A test keeps it free of errors and warnings.
const TEMPLATE: &str = include_str!("../../assets/tollgate.yaml");

pub(super) fn init(args: &InitArgs, out: &mut impl Write) -> Result<(), Failure> {
    let name = args.file.display();
    let mut options = OpenOptions::new();
    options.write(true);
    match args.force {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    let file = options.open(&args.file);
    file.and_then(|mut file| file.write_all(TEMPLATE.as_bytes()))
        .map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Failure::BadInput(format!("{name} exists already; --force overwrites it"))
            }
            _ => Failure::Unavailable(format!("cannot write {name}: {error}")),
        })?;
    writeln!(
        out,
        "wrote {name}: a gateway in front of http://127.0.0.1:3000, 10 requests a second for each client"
    )?;
    Ok(writeln!(out, "next: tollgate check-config {name}")?)
}
