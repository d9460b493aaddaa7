//! Functions for operators under the names that they have in earlier releases: `TfLiteRegistrationExternal…` up to
//! TensorFlow Lite 2.15, `TfLiteOperatorCreateWithData` in 2.17.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{Free, Init, NodeFn};
use crate::operator::*;
use crate::options::OptionsHandle;
use crate::registration::TfLiteInterpreterOptionsAddOperator;

/// As [`TfLiteOperatorCreate`], without data.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteRegistrationExternalCreate(
    code: c_int,
    name: *const c_char,
    version: c_int,
) -> *mut OperatorHandle {
    // SAFETY: the conditions are the same.
    unsafe { TfLiteOperatorCreate(code, name, version, std::ptr::null_mut()) }
}

/// As [`TfLiteOperatorCreate`], which had no data in TensorFlow Lite 2.17.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOperatorCreateWithData(
    code: c_int,
    name: *const c_char,
    version: c_int,
    user_data: *mut c_void,
) -> *mut OperatorHandle {
    // SAFETY: the conditions are the same.
    unsafe { TfLiteOperatorCreate(code, name, version, user_data) }
}

macro_rules! names {
    ($($name:ident => $new:ident($($argument:ident: $ty:ty),*) $(-> $result:ty)?;)*) => { $(
        #[doc = concat!("As [`", stringify!($new), "`].")]
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $ty),*) $(-> $result)? {
            $new($($argument),*)
        }
    )* };
}

names! {
    TfLiteRegistrationExternalDelete => TfLiteOperatorDelete(operator: *mut OperatorHandle);
    TfLiteRegistrationExternalGetBuiltInCode => TfLiteOperatorGetBuiltInCode(operator: *const OperatorHandle) -> c_int;
    TfLiteRegistrationExternalGetCustomName
        => TfLiteOperatorGetCustomName(operator: *const OperatorHandle) -> *const c_char;
    TfLiteRegistrationExternalGetVersion => TfLiteOperatorGetVersion(operator: *const OperatorHandle) -> c_int;
    TfLiteRegistrationExternalSetInit => TfLiteOperatorSetInit(operator: *mut OperatorHandle, init: Option<Init>);
    TfLiteRegistrationExternalSetFree => TfLiteOperatorSetFree(operator: *mut OperatorHandle, free: Option<Free>);
    TfLiteRegistrationExternalSetPrepare
        => TfLiteOperatorSetPrepare(operator: *mut OperatorHandle, prepare: Option<NodeFn>);
    TfLiteRegistrationExternalSetInvoke
        => TfLiteOperatorSetInvoke(operator: *mut OperatorHandle, invoke: Option<NodeFn>);
    TfLiteRegistrationExternalSetAsyncKernel
        => TfLiteOperatorSetAsyncKernel(operator: *mut OperatorHandle, kernel: *const c_void);
    TfLiteRegistrationExternalSetInplaceOperator
        => TfLiteOperatorSetInplaceOperator(operator: *mut OperatorHandle, bits: u64);
    TfLiteInterpreterOptionsAddRegistrationExternal
        => TfLiteInterpreterOptionsAddOperator(options: *mut OptionsHandle, operator: *mut OperatorHandle);
}
