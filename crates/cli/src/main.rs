//! The program `gradvine`.
#![forbid(unsafe_code)]

use std::{env, process::ExitCode};

/// Of the program that is linked statically.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let path = match env::current_exe() {
        Ok(path) => path,
        Err(error) => {
            eprintln!("error: the path of this program is not known: {error}");
            return ExitCode::from(4);
        }
    };
    let program = gradvine_cli::Program { path, first: Vec::new() };
    gradvine_cli::run(program, env::args_os().skip(1).collect()).into()
}
