//! The native module of the Python package `delegraph`.
//!
//! Python code in `python/delegraph` adds parts that are not performance-critical: arguments, texts, conveniences. The
//! module holds interpreters ([`interpreter`]), converts between tensors and NumPy arrays ([`arrays`]), and lets Python
//! classes be kernels ([`ops`]) and delegates ([`delegates`]).

mod arrays;
mod command;
mod delegates;
mod details;
mod error;
mod fork;
mod interpreter;
mod ops;
mod report;
mod state;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<interpreter::Interpreter>()?;
    module.add_class::<delegates::Delegate>()?;
    module.add_function(wrap_pyfunction!(delegates::wgpu_delegate, module)?)?;
    module.add_function(wrap_pyfunction!(delegates::plugin_delegate, module)?)?;
    module.add_function(wrap_pyfunction!(delegates::litert_delegate, module)?)?;
    module.add_function(wrap_pyfunction!(delegates::python_delegate, module)?)?;
    module.add_function(wrap_pyfunction!(delegates::devices, module)?)?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    module.add_function(wrap_pyfunction!(fork::forked, module)?)?;
    Ok(())
}
