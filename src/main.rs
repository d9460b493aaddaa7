//! The `delegraph` command. `cli` has one file per verb.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
