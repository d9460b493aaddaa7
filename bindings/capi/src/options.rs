//! Options of interpreters.

use std::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use delegraph::delegate_api::plugin::KernelLibrary;
use delegraph::interpreter::ResourceLimits;
use delegraph::{Error, Interpreter, MutableOpResolver, Policy, fusion};
use delegraph_ffi::contain;
use delegraph_ffi::delegates::{Choice, named, of_environment};
use delegraph_ffi::handle::Table;
use delegraph_ffi::resolvers::resolver;

use crate::error::{Failure, Out, call, dg_status};
use crate::state::{Gpu, State, Traits};
use crate::text::{present, utf8};

/// Options of interpreters. They may be changed and deleted while interpreters that were created with them exist.
pub struct dg_options {
    _private: (),
}

/// The treatment of nodes that no delegate claims.
pub type dg_policy = i32;
/// Such nodes run on the CPU, and the report has the reasons. The default.
pub const DG_POLICY_PREFER: dg_policy = 0;
/// Such nodes are the error `DG_UNSUPPORTED` of `dg_interpreter_prepare`.
pub const DG_POLICY_REQUIRE: dg_policy = 1;
/// All nodes run on the CPU, and the report has the nodes that delegates would claim.
pub const DG_POLICY_REPORT: dg_policy = 2;

/// A delegate of the options.
#[derive(Clone)]
enum Source {
    /// A device that interpreters share. Never created without the feature `wgpu`.
    #[cfg_attr(not(feature = "wgpu"), allow(dead_code, reason = "its type has no values"))]
    Gpu(Gpu),
    /// Created for each interpreter.
    Named(String),
}

/// The object behind a `dg_options*`.
#[derive(Clone)]
pub(crate) struct Options {
    threads: usize,
    reference: bool,
    delegates: Vec<Source>,
    libraries: Vec<KernelLibrary>,
    policy: Policy,
    limits: ResourceLimits,
    fusion: bool,
    fallback: bool,
    keep_outputs: bool,
    preserve_all: bool,
    strict_versions: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: 1,
            reference: false,
            delegates: Vec::new(),
            libraries: Vec::new(),
            policy: Policy::Prefer,
            limits: ResourceLimits::default(),
            fusion: false,
            fallback: false,
            keep_outputs: false,
            preserve_all: false,
            strict_versions: false,
        }
    }
}

static OPTIONS: Table<Mutex<Options>> = Table::new(9);

/// Returns a copy of options; the defaults for null.
///
/// # Errors
/// [`dg_status::DG_INVALID_HANDLE`] if they were deleted.
pub(crate) fn copy_of(options: *const dg_options) -> Result<Options, Failure> {
    if options.is_null() {
        return Ok(Options::default());
    }
    let options = OPTIONS.get(options).ok_or_else(|| Failure::handle("options handle"))?;
    Ok(options.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Changes options.
fn change(options: *mut dg_options, f: impl FnOnce(&mut Options) -> Result<(), Failure>) -> dg_status {
    call(|| {
        let options = OPTIONS.get(options).ok_or_else(|| Failure::handle("options handle"))?;
        f(&mut options.lock().unwrap_or_else(PoisonError::into_inner))
    })
}

impl Options {
    fn resolver(&self) -> MutableOpResolver {
        let mut resolver = resolver(self.reference);
        self.libraries.iter().for_each(|library| library.register(&mut resolver));
        resolver
    }

    /// Creates an interpreter, which is prepared on first use.
    ///
    /// # Errors
    /// The errors of [`delegraph::interpreter::InterpreterBuilder::build`], and of delegates that cannot be created.
    pub(crate) fn build(&self, model: &Arc<delegraph::Model>) -> Result<State, Failure> {
        let mut builder = Interpreter::builder(model.clone()).resolver(self.resolver());
        builder =
            builder.threads(self.threads).policy(self.policy).limits(self.limits.clone()).prepare_later();
        builder = if self.fusion { builder.fusion(fusion::Pipeline::new()) } else { builder };
        builder = if self.keep_outputs { builder.keep_outputs() } else { builder };
        builder = if self.preserve_all { builder.preserve_all_tensors() } else { builder };
        builder = if self.strict_versions { builder.strict_versions() } else { builder };
        let mut gpu = None;
        for source in &self.delegates {
            match source {
                Source::Gpu(device) => {
                    gpu.get_or_insert_with(|| device.clone());
                    builder = builder.delegate(device.delegate());
                }
                Source::Named(name) => {
                    if let Some(delegate) = named(name)?.delegate() {
                        builder = builder.delegate(delegate);
                    }
                }
            }
        }
        let traits =
            Traits { fallback: self.fallback, reference: self.reference, preserves: self.preserve_all };
        Ok(State::new(builder.build()?, model.clone(), gpu, traits))
    }
}

/// Creates options with defaults: the CPU's optimized kernels, one thread, no delegates, no time limit, three quarters
/// of the machine's memory. Deleted with `dg_options_delete`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_options_create(options: *mut *mut dg_options) -> dg_status {
    call(|| {
        // SAFETY: the interface requires null or a valid pointer for the result.
        let out = unsafe { Out::new(options, std::ptr::null_mut()) }?;
        let handle: *mut dg_options = OPTIONS.insert(Mutex::default());
        if handle.is_null() {
            return Err(Failure::new(dg_status::DG_LIMIT, "there are too many options"));
        }
        out.set(handle);
        Ok(())
    })
}

/// Deletes options; null is allowed.
///
/// `DG_INVALID_HANDLE` if they were deleted before.
#[unsafe(no_mangle)]
pub extern "C" fn dg_options_delete(options: *mut dg_options) -> dg_status {
    call(|| match OPTIONS.remove(options) {
        None if !options.is_null() => Err(Failure::handle("options handle")),
        _ => Ok(()),
    })
}

/// Sets the number of threads of CPU kernels, at most 1,024. 0 selects the number of processors.
#[unsafe(no_mangle)]
pub extern "C" fn dg_options_set_threads(options: *mut dg_options, threads: u32) -> dg_status {
    change(options, |options| {
        options.threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            1..=1024 => threads as usize,
            _ => return Err(Failure::argument(format!("{threads} threads; at most 1024 are possible"))),
        };
        Ok(())
    })
}

/// Adds a delegate. Delegates claim nodes in the order in which they are added. The names are those of the command's
/// `--delegate`:
///
/// - `wgpu`, the GPU: `wgpu?adapter=NAME&precision=f16&fusion=off&max_gpu_bytes=1000000`. Interpreters of these options share
///   its device.
/// - `plugin:PATH?key=value`, a library with a delegate of Delegraph.
/// - `litert:PATH?key=value`, a library with a delegate for LiteRT or TensorFlow Lite.
/// - `cpu` adds no delegate, and `reference` selects the reference kernels instead of the optimized ones.
///
/// In keys and values, `%` and two hexadecimal digits represent a byte. Null selects the delegate that the environment
/// variable `DELEGRAPH_DELEGATE` names, if it is set. Libraries are loaded, and stay loaded: name only libraries that
/// may run code in the process.
///
/// `DG_INVALID_ARGUMENT` for other names and options, `DG_UNSUPPORTED` in a library without the GPU, `DG_DELEGATE` if the
/// delegate cannot be created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_options_add_delegate(options: *mut dg_options, name: *const c_char) -> dg_status {
    change(options, |options| {
        let (choice, name) = if name.is_null() {
            let text = std::env::var(delegraph_ffi::delegates::VARIABLE).unwrap_or_default();
            (of_environment()?, text)
        } else {
            // SAFETY: the interface requires null or a text.
            let name = unsafe { utf8(name, "the name of the delegate") }?;
            (named(name)?, name.to_owned())
        };
        match choice {
            Choice::Cpu => {}
            Choice::Reference => options.reference = true,
            #[cfg(feature = "wgpu")]
            Choice::Gpu(delegate) => options.delegates.push(Source::Gpu(Gpu::new(*delegate))),
            Choice::Delegate(_) => options.delegates.push(Source::Named(name)),
        }
        Ok(())
    })
}

/// Sets the treatment of nodes that no delegate claims: a `DG_POLICY_…`.
#[unsafe(no_mangle)]
pub extern "C" fn dg_options_set_policy(options: *mut dg_options, policy: dg_policy) -> dg_status {
    change(options, |options| {
        options.policy = match policy {
            DG_POLICY_PREFER => Policy::Prefer,
            DG_POLICY_REQUIRE => Policy::Require,
            DG_POLICY_REPORT => Policy::Report,
            _ => {
                let known = "DG_POLICY_PREFER, DG_POLICY_REQUIRE and DG_POLICY_REPORT";
                return Err(Failure::argument(format!("policy {policy}; only {known} are supported")));
            }
        };
        Ok(())
    })
}

/// Selects the reference kernels (not 0), or the optimized ones (0, the default).
#[unsafe(no_mangle)]
pub extern "C" fn dg_options_set_reference_kernels(options: *mut dg_options, reference: i32) -> dg_status {
    change(options, |options| {
        options.reference = reference != 0;
        Ok(())
    })
}

/// Adds a library with kernels of custom ops. It is loaded, and stays loaded.
///
/// `DG_DELEGATE` if it cannot be loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dg_options_add_kernels(options: *mut dg_options, path: *const c_char) -> dg_status {
    change(options, |options| {
        // SAFETY: the interface requires null or a text.
        let path = contain::path(unsafe { present(path, "the path") }?)?;
        // SAFETY: the application names the library, and so trusts it.
        let library = unsafe { KernelLibrary::open(path) };
        options.libraries.push(library.map_err(Error::external)?);
        Ok(())
    })
}

/// Sets the maximum number of bytes of all tensors, temporaries, packed weights and tables of one interpreter. A model
/// that needs more is `DG_LIMIT`. The file itself is not counted.
#[unsafe(no_mangle)]
pub extern "C" fn dg_options_set_max_memory(options: *mut dg_options, bytes: u64) -> dg_status {
    change(options, |options| {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        options.limits = options.limits.clone().with_memory(bytes);
        Ok(())
    })
}

/// Sets the time limit, in nanoseconds, of each call that creates, prepares or runs an interpreter. A call that takes
/// longer is `DG_TIME_LIMIT`. 0 means no limit, the default.
#[unsafe(no_mangle)]
pub extern "C" fn dg_options_set_time_limit(options: *mut dg_options, nanoseconds: u64) -> dg_status {
    change(options, |options| {
        let time = (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds));
        options.limits = options.limits.clone().with_time(time);
        Ok(())
    })
}

/// Sets whether the model is rewritten with fewer, larger ops before delegates see it (not 0). Off by default.
#[unsafe(no_mangle)]
pub extern "C" fn dg_options_set_fusion(options: *mut dg_options, fusion: i32) -> dg_status {
    change(options, |options| {
        options.fusion = fusion != 0;
        Ok(())
    })
}

/// Sets whether a delegate that fails during a run is removed, and the run repeated without it, from the same inputs
/// and variables (not 0). Off by default: the failure is `DG_DELEGATE`.
#[unsafe(no_mangle)]
pub extern "C" fn dg_options_set_fallback(options: *mut dg_options, fallback: i32) -> dg_status {
    change(options, |options| {
        options.fallback = fallback != 0;
        Ok(())
    })
}

/// Sets whether outputs may stay in buffers of delegates (not 0): see `dg_interpreter_output_buffer`. Off by default.
#[unsafe(no_mangle)]
pub extern "C" fn dg_options_set_keep_outputs(options: *mut dg_options, keep: i32) -> dg_status {
    change(options, |options| {
        options.keep_outputs = keep != 0;
        Ok(())
    })
}

/// Sets whether nodes that use features of a newer version than their own are the error `DG_INVALID_MODEL` (not 0). Off
/// by default: the kernels run them.
#[unsafe(no_mangle)]
pub extern "C" fn dg_options_set_strict_versions(options: *mut dg_options, strict: i32) -> dg_status {
    change(options, |options| {
        options.strict_versions = strict != 0;
        Ok(())
    })
}

/// Sets whether every tensor keeps its data until the end of a run (not 0), for `dg_interpreter_read_tensor`. This takes more
/// memory. Off by default.
#[unsafe(no_mangle)]
pub extern "C" fn dg_options_set_preserve_tensors(options: *mut dg_options, preserve: i32) -> dg_status {
    change(options, |options| {
        options.preserve_all = preserve != 0;
        Ok(())
    })
}
