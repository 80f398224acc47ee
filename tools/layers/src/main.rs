//! Checks the layers of the workspace (`make layers`): which crate may depend on which, and that no two
//! top-level modules of a crate depend on each other, directly or by way of others.

mod crates;
mod cycle;
mod modules;
mod paths;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match check(&root) {
        Ok(report) => {
            let _ = writeln!(io::stdout(), "{report}");
            ExitCode::SUCCESS
        }
        Err(errors) => {
            let _ = writeln!(io::stderr(), "{errors}");
            ExitCode::FAILURE
        }
    }
}

/// The last line of the report, or what is wrong.
fn check(root: &Path) -> Result<String, String> {
    let crates = crates::find(root)?;
    let mut errors = crates::violations(&crates);
    let (mut modules, mut cycles) = (0, 0);
    for package in &crates {
        for graph in modules::graphs(&package.folder.join("src"))? {
            modules += graph.len();
            for cycle in cycle::find(&graph) {
                cycles += 1;
                errors.push(format!("{}: {cycle}", package.name));
            }
        }
    }
    let summary = format!(
        "layers: crates={} modules={modules} cycles={cycles}",
        crates.len()
    );
    match errors.is_empty() {
        true => Ok(summary),
        false => Err(format!("{}\n{summary}", errors.join("\n"))),
    }
}
