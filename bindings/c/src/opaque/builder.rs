//! Tensors that kernels add.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use delegraph::core::error::{Error, Result};
use delegraph_ffi::handle::Table;
use delegraph_litert::abi::{Quantization, ScaleZeroPoint};

use crate::abi;
use crate::contain::guard;
use crate::context::{Added, functions};
use crate::report::Reporter;
use crate::tensor::allocation;
use crate::types::{self, Kind, Status};

/// The opaque type of the interface.
#[repr(C)]
pub(crate) struct BuilderHandle([u8; 0]);

/// The object behind a `TfLiteOpaqueTensorBuilder*`.
struct Builder(Mutex<Added>);

// SAFETY: the pointers are passed to the context to which the tensor is added, by the thread that uses it.
unsafe impl Send for Builder {}
// SAFETY: as above.
unsafe impl Sync for Builder {}

static BUILDERS: Table<Builder> = Table::new(Kind::TensorBuilder as usize);

/// Creates a description of a tensor.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteOpaqueTensorBuilderCreate() -> *mut BuilderHandle {
    guard("TfLiteOpaqueTensorBuilderCreate", std::ptr::null_mut(), || {
        BUILDERS.insert(Builder(Mutex::new(Added {
            ty: 0,
            allocation_type: 0,
            data: std::ptr::null_mut(),
            params: ScaleZeroPoint::default(),
            quantization: Quantization { kind: 0, params: std::ptr::null_mut() },
        })))
    })
}

/// Deletes a description.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteOpaqueTensorBuilderDelete(builder: *mut BuilderHandle) {
    guard("TfLiteOpaqueTensorBuilderDelete", (), || drop(BUILDERS.remove(builder)));
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $field:ident, $ty:ty;)*) => { $(
        $(#[$doc])*
        /// Returns the description.
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(builder: *mut BuilderHandle, value: $ty) -> *mut BuilderHandle {
            guard(stringify!($name), builder, || {
                match BUILDERS.get(builder) {
                    Some(known) => known.0.lock().unwrap_or_else(PoisonError::into_inner).$field = value,
                    None => Reporter::default().report(concat!(stringify!($name), ": the builder is null or deleted")),
                }
                builder
            })
        }
    )* };
}

setters! {
    /// Sets the type of the elements.
    TfLiteOpaqueTensorBuilderSetType: ty, c_int;
    /// Sets the data of a dynamic tensor: memory of the C library, which the tensor owns once it is added.
    TfLiteOpaqueTensorBuilderSetData: data, *mut c_void;
    /// Sets the storage of the data.
    TfLiteOpaqueTensorBuilderSetAllocationType: allocation_type, c_int;
    /// Sets scale and zero point.
    TfLiteOpaqueTensorBuilderSetQuantizationParams: params, ScaleZeroPoint;
    /// Sets the quantization, whose parts the tensor owns once it is added.
    TfLiteOpaqueTensorBuilderSetQuantization: quantization, Quantization;
}

/// Adds a tensor to a graph, and stores its index. Other tensors may move.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOpaqueContextAddTensor(
    context: *mut abi::Context,
    builder: *mut BuilderHandle,
    index: *mut c_int,
) -> Status {
    // SAFETY: the interface requires a live context, and null or a valid pointer for the result.
    unsafe {
        functions::with("TfLiteOpaqueContextAddTensor", context, |context| {
            let missing = || Error::InvalidInput("the builder is null or deleted".into());
            let added =
                *BUILDERS.get(builder).ok_or_else(missing)?.0.lock().unwrap_or_else(PoisonError::into_inner);
            check(&added)?;
            let at = context.add_tensor(added)?;
            if !index.is_null() {
                *functions::place(index)? = crate::arrays::int(at);
            }
            Ok(())
        })
    }
}

fn check(added: &Added) -> Result<()> {
    let wrong = |text: String| Err(Error::InvalidInput(text));
    if added.ty != 0 && types::element(added.ty).is_none() {
        return wrong(format!("there is no type {}", added.ty));
    }
    match added.allocation_type {
        allocation::DYNAMIC if added.data.is_null() => wrong("a dynamic tensor needs data".into()),
        allocation::ARENA_RW | allocation::ARENA_RW_PERSISTENT if !added.data.is_null() => {
            wrong("a tensor of the arena cannot have its own data".into())
        }
        allocation::DYNAMIC | allocation::ARENA_RW | allocation::ARENA_RW_PERSISTENT => Ok(()),
        other => wrong(format!(
            "the allocation type {other} cannot be added: kTfLiteDynamic, kTfLiteArenaRw and \
             kTfLiteArenaRwPersistent can"
        )),
    }
}
