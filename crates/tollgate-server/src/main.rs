//! The program `tollgate`. The library `tollgate_server` has its code.

/// Only for the program, because those who embed the library choose their own. A request through the gateway allocates about twenty times.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    tollgate_server::main()
}
