//! Runs any delegate that is written against Delegraph's traits inside LiteRT / TensorFlow Lite.
//!
//! A shared library with one line,
//!
//! ```
//! # use delegraph_delegate_api::plugin::{CreateError, PluginOptions};
//! # struct MyDelegate;
//! # impl delegraph_delegate_api::Delegate for MyDelegate {
//! #     fn name(&self) -> &str { "mine" }
//! #     fn max_versions(&self) -> &delegraph_delegate_api::VersionTable { unimplemented!() }
//! #     fn prepare<'a>(&'a mut self, _: &mut delegraph_delegate_api::DelegateContext<'a>) -> delegraph_core::Result<()> { Ok(()) }
//! # }
//! # fn create(_: &PluginOptions) -> Result<MyDelegate, CreateError> { Ok(MyDelegate) }
//! delegraph_litert::export_litert_delegate!(create);
//! ```
//!
//! exports the entry points of an external delegate, so that the runtime loads it, from Python for example with
//! `load_delegate("libmine.so", {"verbose": "1"})`.
//!
//! The delegate sees the runtime's graph as it sees any graph: typed params, propagated shapes, constants folded, nodes
//! in the plan's order. Constants are not copied. What the delegate does not claim, and everything when it fails,
//! stays with the runtime.
//!
//! # Options
//!
//! | option | values | meaning |
//! |---|---|---|
//! | `policy` | `prefer` (default), `require` | whether it is an error when a node is left to the runtime |
//! | `verbose` | `0`, `1` | say on standard error what is claimed, and why the rest is not |
//! | `allow_unknown_host` | `0`, `1` | take runtimes other than [`KNOWN_HOSTS`] |
//!
//! All others are the delegate's own.

pub mod abi;
mod bridge;
mod fold;
mod graph;
mod host;
mod kernel;
mod options;
mod params;
mod raw;
mod runtime;

#[cfg(test)]
#[cfg(unix)]
mod tests;

pub use bridge::{create, destroy};
pub use host::KNOWN_HOSTS;

/// Exports the entry points of an external delegate from the library that this is called in.
///
/// Takes what makes the delegate: a function of [`&PluginOptions`](delegraph_delegate_api::plugin::PluginOptions) that
/// returns a [`Delegate`](delegraph_delegate_api::Delegate), or an error that can be shown.
#[macro_export]
macro_rules! export_litert_delegate {
    ($make:expr) => {
        /// Makes a delegate for LiteRT / TensorFlow Lite; null, and the reason reported, where it cannot be made.
        ///
        /// # Safety
        /// `keys` and `values` are null or lists of `count` texts that end with a zero byte.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn tflite_plugin_create_delegate(
            keys: *const *const ::std::ffi::c_char,
            values: *const *const ::std::ffi::c_char,
            count: usize,
            report_error: $crate::abi::ReportError,
        ) -> *mut $crate::abi::Delegate {
            // SAFETY: as the caller says.
            unsafe { $crate::create(keys, values, count, report_error, $make) }
        }

        /// Destroys a delegate; null is allowed.
        ///
        /// # Safety
        /// The delegate was made by `tflite_plugin_create_delegate`, and no interpreter uses it any more.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn tflite_plugin_destroy_delegate(delegate: *mut $crate::abi::Delegate) {
            // SAFETY: as the caller says.
            unsafe { $crate::destroy(delegate) }
        }
    };
}
