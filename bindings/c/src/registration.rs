//! The functions of `c_api.h` and `c_api_experimental.h` that add kernels and delegates of the application to options.

use std::ffi::{c_char, c_int, c_void};
use std::ops::RangeInclusive;
use std::sync::Arc;

use delegraph::core::error::Result;
use delegraph::core::{BuiltinOp, Op};

use crate::abi;
use crate::contain::guard;
use crate::custom_ops::{
    Callbacks, Custom, FindBuiltin, FindBuiltinOperator, FindCustom, FindCustomOperator,
};
use crate::delegate::Pointer;
use crate::operator::{Operator, OperatorHandle, find};
use crate::options::{OptionsHandle, change};
use crate::report::{Reporter, UserData};

/// Adds the kernel of an operator to options.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsAddOperator(
    options: *mut OptionsHandle,
    operator: *mut OperatorHandle,
) {
    let function = "TfLiteInterpreterOptionsAddOperator";
    guard(function, (), || {
        let Some(operator) = find(function, operator) else { return };
        let version = u32::try_from(operator.version).unwrap_or(1);
        add(function, options, operator.op(), version..=version, operator);
    });
}

fn add(
    function: &str,
    options: *mut OptionsHandle,
    op: Result<Op>,
    versions: RangeInclusive<u32>,
    operator: Arc<Operator>,
) {
    match op {
        Ok(op) => {
            change(function, options, |options| options.kernels.push(Custom { op, versions, operator }));
        }
        Err(error) => Reporter::default().report(&format!("{function}: {}", error.chain())),
    }
}

/// Adds a kernel for a range of versions of a builtin op, which replaces the library's kernel.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteInterpreterOptionsAddBuiltinOp(
    options: *mut OptionsHandle,
    op: c_int,
    registration: *const abi::Registration,
    min_version: i32,
    max_version: i32,
) {
    let function = "TfLiteInterpreterOptionsAddBuiltinOp";
    // SAFETY: the conditions are the same.
    unsafe {
        add_classic(function, options, Op::Builtin(BuiltinOp(op)), registration, min_version, max_version)
    };
}

/// Adds a kernel for a range of versions of a custom op.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteInterpreterOptionsAddCustomOp(
    options: *mut OptionsHandle,
    name: *const c_char,
    registration: *const abi::Registration,
    min_version: i32,
    max_version: i32,
) {
    let function = "TfLiteInterpreterOptionsAddCustomOp";
    // SAFETY: the interface requires null or a text, and null or a registration.
    unsafe {
        match crate::contain::text(name) {
            Some(name) => {
                let op = Op::custom(&name.to_string_lossy());
                add_classic(function, options, op, registration, min_version, max_version);
            }
            None => Reporter::default().report(&format!("{function}: the name is null")),
        }
    }
}

/// # Safety
/// The registration is null or a structure whose name is null or a text.
unsafe fn add_classic(
    function: &str,
    options: *mut OptionsHandle,
    op: Op,
    registration: *const abi::Registration,
    min_version: i32,
    max_version: i32,
) {
    guard(function, (), || {
        if registration.is_null() || !registration.is_aligned() {
            return Reporter::default()
                .report(&format!("{function}: the registration is null or misaligned"));
        }
        let name = if let Op::Custom(name) = &op { Some(crate::tensor::name(name)) } else { None };
        // SAFETY: guaranteed by the caller.
        let operator = unsafe { Operator::of_registration(*registration, name) };
        let version = |version: i32| u32::try_from(version).unwrap_or(0);
        add(function, options, Ok(op), version(min_version)..=version(max_version), Arc::new(operator));
    });
}

fn set(function: &str, options: *mut OptionsHandle, callbacks: Callbacks) {
    change(function, options, |options| {
        options.resolver = Some(callbacks).filter(|callbacks| !callbacks.is_empty());
    });
}

macro_rules! classic_resolvers {
    ($($name:ident)*) => { $(
        /// Sets functions that find the kernels of ops, and replace all other kernels. Only the fields of a
        /// registration that all releases have are read.
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(
            options: *mut OptionsHandle,
            builtin: Option<FindBuiltin>,
            custom: Option<FindCustom>,
            user_data: *mut c_void,
        ) {
            let (builtin_operator, custom_operator) = (None, None);
            let user_data = UserData(user_data);
            let callbacks = Callbacks { builtin, custom, builtin_operator, custom_operator, user_data };
            set(stringify!($name), options, callbacks);
        }
    )* };
}

classic_resolvers! {
    TfLiteInterpreterOptionsSetOpResolver
    TfLiteInterpreterOptionsSetOpResolverV1
    TfLiteInterpreterOptionsSetOpResolverV2
    TfLiteInterpreterOptionsSetOpResolverV3
}

/// As [`TfLiteInterpreterOptionsSetOpResolver`], with functions that return operators.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsSetOpResolverExternal(
    options: *mut OptionsHandle,
    builtin_operator: Option<FindBuiltinOperator>,
    custom_operator: Option<FindCustomOperator>,
    user_data: *mut c_void,
) {
    let (builtin, custom, user_data) = (None, None, UserData(user_data));
    let callbacks = Callbacks { builtin, custom, builtin_operator, custom_operator, user_data };
    set("TfLiteInterpreterOptionsSetOpResolverExternal", options, callbacks);
}

/// As [`TfLiteInterpreterOptionsSetOpResolverExternal`], with fallback functions for other ops.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsSetOpResolverExternalWithFallback(
    options: *mut OptionsHandle,
    builtin_operator: Option<FindBuiltinOperator>,
    custom_operator: Option<FindCustomOperator>,
    builtin: Option<FindBuiltin>,
    custom: Option<FindCustom>,
    user_data: *mut c_void,
) {
    let user_data = UserData(user_data);
    let callbacks = Callbacks { builtin, custom, builtin_operator, custom_operator, user_data };
    set("TfLiteInterpreterOptionsSetOpResolverExternalWithFallback", options, callbacks);
}

/// Adds a delegate, which must outlive the interpreters that are created with the options.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteInterpreterOptionsAddDelegate(
    options: *mut OptionsHandle,
    delegate: *mut abi::Delegate,
) {
    let function = "TfLiteInterpreterOptionsAddDelegate";
    if delegate.is_null() {
        return Reporter::default().report(&format!("{function}: the delegate is null"));
    }
    change(function, options, |options| options.delegates.push(Pointer(delegate)));
}
