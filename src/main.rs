//! The `delegraph` command.

fn main() -> std::process::ExitCode {
    let program = std::env::current_exe().map(|path| vec![path.into()]).unwrap_or_default();
    delegraph::command(std::env::args_os(), program).into()
}
