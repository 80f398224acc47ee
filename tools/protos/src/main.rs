//! Makes Rust of the protocols in `crates/tollgate-server/proto`. Called by `tools/protos/regenerate`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let server = root.join("crates/tollgate-server");
    let proto = server.join("proto");
    let files = protox::compile([proto.join("envoy/service/ratelimit/v3/rls.proto")], [proto])?;
    let written = tempfolder()?;
    tonic_prost_build::configure()
        .out_dir(&written)
        .include_file("generated.rs")
        // The service reads calls and writes responses itself: `service/rls/call.rs`.
        .build_server(false)
        .build_client(false)
        .compile_fds(files)?;
    Ok(inline(&written, &server.join("src/service/rls/generated.rs"))?)
}

fn tempfolder() -> std::io::Result<std::path::PathBuf> {
    let folder = std::env::temp_dir().join(format!("tollgate-protos-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// One file out of many: each `include!` gives way to what it includes.
fn inline(folder: &Path, to: &Path) -> std::io::Result<()> {
    let whole = std::fs::read_to_string(folder.join("generated.rs"))?;
    let mut text = String::from("// Made by tools/protos/regenerate. Do not edit.\n");
    for line in whole.lines().filter(|line| !line.starts_with("// This file")) {
        match line.trim().strip_prefix("include!(\"").and_then(|rest| rest.strip_suffix("\");")) {
            Some(name) => text.push_str(&std::fs::read_to_string(folder.join(name))?),
            None => text.push_str(line),
        }
        text.push('\n');
    }
    std::fs::write(to, text)?;
    std::fs::remove_dir_all(folder)
}
