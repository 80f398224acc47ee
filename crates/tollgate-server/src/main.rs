//! The program `tollgate`: see the library `tollgate_server`.

/// For the program alone: whoever embeds the library chooses for themselves. A request through the gateway allocates some twenty times.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    tollgate_server::main()
}
