//! Checks of the structure of the workspace: dependencies between crates, imports between modules, and lengths of
//! functions. `tests/workspace.rs` runs them on every crate, and compares with the tables of ARCHITECTURE.md.
//!
//! - [`Modules`] parses the files of one crate, without test code, and [`Modules::imports`] resolves every `use` and
//!   every path to the file that defines the name, through re-exports.
//! - [`cycles`] finds cycles of imports among the children of each folder.
//! - [`Order`] compares the imports among the children of one folder with the order of a table.
//! - [`Package`] compares the dependencies in `Cargo.toml` with a table.
//! - [`functions`] measures functions, including functions in macros.
//!
//! **Parents.** The file of a folder (`mod.rs`, `lib.rs`, `main.rs`, or `x.rs` next to `x/`) is not one of the folder's
//! children: it declares them, re-exports their names and may call them, and they may use its definitions. A name that
//! it re-exports counts as an import of the child that defines the name. For other folders, it is part of its folder.
//!
//! **Limits.** A method call imports nothing. In macro calls, paths, capitalized names and names of macros are
//! resolved; in macro definitions, only paths that start with `crate` or `$crate`, since other paths are resolved at
//! the call of the macro.

mod collect;
mod functions;
mod graph;
mod modules;
mod order;
mod packages;
mod path;
mod table;

pub use functions::{Function, functions};
pub use graph::{Cycle, cycles};
pub use modules::{Import, Modules, rust_files};
pub use order::Order;
pub use packages::{Package, check_packages};
pub use path::ModulePath;
pub use table::rows;
