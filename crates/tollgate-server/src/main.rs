//! The program `tollgate`: see the library `tollgate_server`.

fn main() -> std::process::ExitCode {
    tollgate_server::main()
}
