//! `tollgate init`: a configuration to begin with.

use std::fs::OpenOptions;
use std::io::{self, Write};

use crate::cli::InitArgs;
use crate::failure::Failure;

/// What is written. A test keeps it free of errors and warnings.
const TEMPLATE: &str = include_str!("../../assets/tollgate.yaml");

/// Runs the command.
pub(crate) fn init(args: &InitArgs, out: &mut impl Write) -> Result<(), Failure> {
    let name = args.file.display();
    let mut options = OpenOptions::new();
    options.write(true);
    match args.force {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    let written = options
        .open(&args.file)
        .and_then(|mut file| file.write_all(TEMPLATE.as_bytes()));
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let message = format!("{name} is there already; --force overwrites it");
            return Err(Failure::BadInput(message));
        }
        Err(error) => {
            return Err(Failure::Unavailable(format!(
                "cannot write {name}: {error}"
            )));
        }
    }
    writeln!(
        out,
        "wrote {name}: a gateway in front of http://127.0.0.1:3000, 10 requests a second for each client"
    )?;
    writeln!(out, "next: tollgate check-config {name}")?;
    Ok(out.flush()?)
}
