//! The program `tollgate`.

fn main() {}
