//! Runs any Delegraph delegate inside LiteRT / TensorFlow Lite and, in the other direction, LiteRT delegates inside
//! Delegraph (`external`, with the Cargo feature of this name).
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
//! The delegate sees the runtime's graph like any graph: typed params, propagated shapes, folded constants, nodes in the
//! plan's order. Constants are not copied. The runtime runs nodes that the delegate does not claim, and all nodes if it
//! fails.
//!
//! # Options
//!
//! | option | values | meaning |
//! |---|---|---|
//! | `policy` | `prefer` (default), `require` | whether an unclaimed node is an error |
//! | `verbose` | `0`, `1` | print claims and rejections to standard error |
//! | `allow_unknown_host` | `0`, `1` | accept runtimes other than [`KNOWN_HOSTS`] |
//!
//! All other options are passed to the delegate.

pub mod abi;
mod bridge;
mod contain;
#[cfg(all(unix, feature = "external"))]
pub mod external;
mod fold;
mod graph;
mod host;
mod kernel;
mod made;
#[cfg(unix)]
mod memory;
mod no_host;
mod options;
mod params;
mod raw;
mod runtime;

#[cfg(test)]
#[cfg(unix)]
mod tests;

pub use bridge::{create, destroy};
pub use host::KNOWN_HOSTS;
#[cfg(all(unix, feature = "external"))]
pub use params::Structure;

/// Exports the entry points of an external delegate from the calling library.
///
/// Takes the function that creates the delegate from [`&PluginOptions`](delegraph_delegate_api::plugin::PluginOptions)
/// and returns a [`Delegate`](delegraph_delegate_api::Delegate), or an error that implements `Display`.
#[macro_export]
macro_rules! export_litert_delegate {
    ($make:expr) => {
        /// Creates a delegate for LiteRT / TensorFlow Lite. Returns null and reports the reason on failure.
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
            // SAFETY: guaranteed by the caller.
            unsafe { $crate::create(keys, values, count, report_error, $make) }
        }

        /// Destroys a delegate; null is allowed.
        ///
        /// # Safety
        /// `delegate` is null, or was made by `tflite_plugin_create_delegate` and is not destroyed yet, and no
        /// interpreter uses it.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn tflite_plugin_destroy_delegate(delegate: *mut $crate::abi::Delegate) {
            // SAFETY: guaranteed by the caller.
            unsafe { $crate::destroy(delegate) }
        }
    };
}
