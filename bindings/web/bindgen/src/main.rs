//! Writes the JavaScript side of a WebAssembly module: `delegraph-web-bindgen MODULE.wasm FOLDER NAME`. With only
//! `MODULE.wasm OUTPUT.wasm` it writes the module without relaxed minima and maxima, for tests.
//!
//! The same as the command `wasm-bindgen --target web`, in the version of the crate `wasm-bindgen` in the lock file:
//! both versions must be equal.

use std::env;

use anyhow::{Context, Result, bail};
use walrus::ir::{BinaryOp, Binop, VisitorMut, dfs_pre_order_mut};
use walrus::{Module, ModuleConfig};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [module, to @ ..] = arguments.as_slice() else {
        bail!("usage: delegraph-web-bindgen MODULE.wasm FOLDER NAME")
    };
    let mut config = ModuleConfig::new();
    // For tests, stack traces contain the names of functions.
    config.generate_name_section(to.len() == 1).generate_producers_section(false);
    let mut module = config.parse_file(module).with_context(|| module.clone())?;
    replace_relaxed_bounds(&mut module);
    let (folder, name) = match to {
        [output] => return module.emit_wasm_file(output),
        [folder, name] => (folder, name),
        _ => bail!("usage: delegraph-web-bindgen MODULE.wasm FOLDER NAME"),
    };
    let mut bindgen = Bindgen::new();
    bindgen.web(true)?.typescript(false).input_module(name, module);
    // The package's own code names the module's file, where bundlers find it.
    bindgen.omit_default_module_path(true);
    // A module that panicked is replaced: `__wbg_reset_state`.
    bindgen.reset_state_function(true);
    bindgen.generate(folder)
}

/// Replaces relaxed minima and maxima by pseudo-minima and pseudo-maxima, which return their first operand if one is
/// NaN.
///
/// With relaxed instructions, LLVM compiles comparisons as `a < b ? a : b` to relaxed ones, although their results for
/// NaN and for zeros depend on the engine. Kernels rely on the comparison: NaN must stay NaN in a clamp, and not become
/// an extremum.
fn replace_relaxed_bounds(module: &mut Module) {
    for (_, function) in module.funcs.iter_local_mut() {
        let entry = function.entry_block();
        dfs_pre_order_mut(&mut Bounds, function, entry);
    }
}

struct Bounds;

impl VisitorMut for Bounds {
    fn visit_binop_mut(&mut self, instruction: &mut Binop) {
        instruction.op = match instruction.op {
            BinaryOp::F32x4RelaxedMin => BinaryOp::F32x4PMin,
            BinaryOp::F32x4RelaxedMax => BinaryOp::F32x4PMax,
            BinaryOp::F64x2RelaxedMin => BinaryOp::F64x2PMin,
            BinaryOp::F64x2RelaxedMax => BinaryOp::F64x2PMax,
            other => other,
        };
    }
}
