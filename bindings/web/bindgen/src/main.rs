//! Writes the JavaScript side of a WebAssembly module: `delegraph-web-bindgen MODULE.wasm FOLDER NAME`.
//!
//! The same as the command `wasm-bindgen --target web`, in the version of the crate `wasm-bindgen` in the lock file:
//! both versions must be equal.

use std::env;

use anyhow::{Result, bail};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [module, folder, name] = arguments.as_slice() else {
        bail!("usage: delegraph-web-bindgen MODULE.wasm FOLDER NAME");
    };
    let mut bindgen = Bindgen::new();
    bindgen.web(true)?.typescript(false).out_name(name).input_path(module);
    // The package's own code names the module's file, where bundlers find it.
    bindgen.omit_default_module_path(true);
    // A module that panicked is replaced: `__wbg_reset_state`.
    bindgen.reset_state_function(true).remove_name_section(true).remove_producers_section(true);
    bindgen.generate(folder)
}
