//! Delegates, kernels of custom ops, and fusions, in shared libraries.
//!
//! An application loads one with [`PluginLibrary`], or with `--delegate plugin:PATH?key=value` on the command line. An
//! author in Rust writes a [`Delegate`](crate::Delegate) like any other, in a crate of type `cdylib`, and exports it:
//!
//! ```
//! use delegraph_delegate_api::plugin::{CreateError, PluginOptions};
//! use delegraph_delegate_api::{DelegateKernel, DelegateParams, GraphView, NodeView, Rejection};
//! use delegraph_delegate_api::{Simple, SimpleDelegate, VersionTable};
//!
//! struct Mine(VersionTable);
//!
//! impl SimpleDelegate for Mine {
//!     fn name(&self) -> &str {
//!         "mine"
//!     }
//!     fn max_versions(&self) -> &VersionTable {
//!         &self.0
//!     }
//!     fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
//!         Err(Rejection::UnsupportedOp { op: node.op().clone() })
//!     }
//!     fn create_kernel(
//!         &mut self,
//!         _: &DelegateParams,
//!         _: &GraphView<'_>,
//!     ) -> delegraph_core::Result<Box<dyn DelegateKernel>> {
//!         Err(delegraph_core::Error::Unsupported("nothing is claimed".into()))
//!     }
//! }
//!
//! delegraph_delegate_api::export_delegate!(|options: &PluginOptions| {
//!     let device: Option<u32> = options.parse("device")?;
//!     if device.is_some_and(|d| d > 0) {
//!         return Err(CreateError::Failed(delegraph_core::Error::Unsupported("there is one device, 0".into())));
//!     }
//!     Ok(Simple(Mine(VersionTable::new(&[]))))
//! });
//! # fn main() {}
//! ```
//!
//! Authors in C, or in anything that can export C functions, include `delegraph_plugin.h`, which is in this crate's
//! `include` folder. The interface is C in both cases ([`abi`]): no Rust type, allocation or panic crosses it, so that
//! plugin and application may be built by different compilers. The application rejects an incompatible library with a
//! message that states the observed and the supported version.

pub mod abi;
#[doc(hidden)]
pub mod export;
mod fusion;
pub mod fusions_abi;
mod host;
pub mod ops_abi;
mod options;
mod raw;

pub use fusion::{FusionChange, FusionKind, FusionResult, FusionUnchanged, LibraryFusion};
#[cfg(all(feature = "plugins", any(unix, windows)))]
pub use host::check_library;
pub use host::{FusionLibrary, KernelLibrary, PluginDelegate, PluginError, PluginFault, PluginLibrary};
pub use options::{CreateError, OptionError, PluginOptions};

/// Exports a delegate from a library (`crate-type = ["cdylib"]`), once per library.
///
/// Takes the function that creates the delegate from the user's options: `Fn(&PluginOptions) -> Result<D, CreateError>`, where
/// `D` is any [`Delegate`](crate::Delegate); [`Simple`](crate::Simple) turns a
/// [`SimpleDelegate`](crate::SimpleDelegate) into one. An option that was passed and not read is an error that names
/// the known options. Panics are caught, and become errors.
#[macro_export]
macro_rules! export_delegate {
    ($create:expr) => {
        #[cfg(not(panic = "unwind"))]
        compile_error!(
            "a plugin must be built with panic = \"unwind\": a panic must not end the application"
        );

        /// Returns the entry of the plugin.
        #[unsafe(no_mangle)]
        pub extern "C" fn delegraph_delegate_plugin() -> *const $crate::plugin::abi::DelegraphPlugin {
            unsafe extern "C" fn create_exported(
                host: *const $crate::plugin::abi::DelegraphHost,
                options: *const $crate::plugin::abi::DelegraphOption,
                option_count: usize,
                delegate: *mut *mut ::core::ffi::c_void,
                error: *mut $crate::plugin::abi::DelegraphError,
            ) -> i32 {
                // SAFETY: the application follows the interface.
                unsafe {
                    $crate::plugin::export::create(host, options, option_count, delegate, error, $create)
                }
            }
            static TABLE: $crate::plugin::abi::DelegraphPlugin =
                $crate::plugin::export::table(create_exported);
            &raw const TABLE
        }
    };
}

/// Exports kernels of custom ops from a library (`crate-type = ["cdylib"]`), once per library.
///
/// Takes the function that registers them, `Fn(&mut MutableOpResolver)`. An application that links the crate can call
/// this function directly. Panics in it, and in the kernels, are caught and become errors.
///
/// ```
/// use delegraph_core::{InvokeContext, Kernel, MutableOpResolver, PrepareContext, Registration, Result};
///
/// struct Sin;
///
/// impl Kernel for Sin {
///     fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
///         let shape = cx.input(0)?.shape().clone();
///         cx.set_output_shape(0, shape)
///     }
///
///     fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
///         let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
///         output.iter_mut().zip(input).for_each(|(y, x)| *y = x.sin());
///         Ok(())
///     }
/// }
///
/// pub fn register(resolver: &mut MutableOpResolver) {
///     resolver.add_custom("Sin", Registration::new(|_| Ok(Sin)), 1);
/// }
///
/// delegraph_delegate_api::export_kernels!(register);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export_kernels {
    ($register:expr) => {
        #[cfg(not(panic = "unwind"))]
        compile_error!(
            "a library of kernels must be built with panic = \"unwind\": a panic must not end the application"
        );

        /// Returns the entry of the library.
        #[unsafe(no_mangle)]
        pub extern "C" fn delegraph_kernel_library() -> *const $crate::plugin::ops_abi::DelegraphKernelLibrary
        {
            unsafe extern "C" fn open_exported(
                host: *const $crate::plugin::abi::DelegraphHost,
                library: *mut *mut ::core::ffi::c_void,
                error: *mut $crate::plugin::abi::DelegraphError,
            ) -> i32 {
                // SAFETY: the application follows the interface.
                unsafe { $crate::plugin::export::ops::open(host, library, error, $register) }
            }
            static TABLE: $crate::plugin::ops_abi::DelegraphKernelLibrary =
                $crate::plugin::export::ops::table(open_exported);
            &raw const TABLE
        }
    };
}
