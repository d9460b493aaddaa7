//! The `delegraph` command.

fn main() -> std::process::ExitCode {
    let program = std::env::current_exe().ok().map(|path| vec![path.into()]);
    delegraph::command(std::env::args_os(), program).into()
}
