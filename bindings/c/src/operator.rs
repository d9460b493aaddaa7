//! Operators: the functions of `operator.h`, with which an application adds kernels for ops.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use delegraph::core::error::{Error, Result};
use delegraph::core::{BuiltinOp, Op};
use delegraph_ffi::handle::Table;
use delegraph_litert::abi::Node;

use crate::abi::{Context, Free, Init, NodeFn, Registration};
use crate::contain::guard;
use crate::report::{Reporter, UserData};
use crate::types::{ERROR, Kind, OK, Status};

/// `kTfLiteBuiltinCustom`.
pub(crate) const CUSTOM: c_int = 32;
/// `kTfLiteBuiltinDelegate`: the kernel of a delegate.
#[cfg(test)]
pub(crate) const DELEGATE: c_int = 51;

type InitWithData = unsafe extern "C" fn(*mut c_void, *mut Context, *const c_char, usize) -> *mut c_void;
type FreeWithData = unsafe extern "C" fn(*mut c_void, *mut Context, *mut c_void);
type NodeFnWithData = unsafe extern "C" fn(*mut c_void, *mut Context, *mut Node) -> Status;

/// A function of the application, with or without the data of its operator as the first argument.
#[derive(Debug, Clone, Copy)]
enum Function<P, D> {
    Unset,
    Plain(P),
    WithData(D),
}

impl<P, D> Function<P, D> {
    fn plain(function: Option<P>) -> Self {
        function.map_or(Function::Unset, Function::Plain)
    }

    fn with_data(function: Option<D>) -> Self {
        function.map_or(Function::Unset, Function::WithData)
    }
}

/// The functions of a kernel of the application.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Functions {
    init: Function<Init, InitWithData>,
    free: Function<Free, FreeWithData>,
    prepare: Function<NodeFn, NodeFnWithData>,
    invoke: Function<NodeFn, NodeFnWithData>,
    user_data: UserData,
}

impl Functions {
    fn new(user_data: *mut c_void) -> Self {
        let (init, free) = (Function::Unset, Function::Unset);
        let (prepare, invoke) = (Function::Unset, Function::Unset);
        Functions { init, free, prepare, invoke, user_data: UserData(user_data) }
    }

    /// Creates the state of a kernel; null without a function for it.
    ///
    /// # Safety
    /// The context is live, and there are no references into it. `buffer` is valid for reads of `len` bytes, or null.
    pub(crate) unsafe fn init(
        &self,
        context: *mut Context,
        buffer: *const c_char,
        len: usize,
    ) -> *mut c_void {
        // SAFETY: guaranteed by the caller; the application registered the function for this use.
        unsafe {
            match self.init {
                Function::Unset => std::ptr::null_mut(),
                Function::Plain(f) => f(context, buffer, len),
                Function::WithData(f) => f(self.user_data.0, context, buffer, len),
            }
        }
    }

    /// Frees the state of a kernel.
    ///
    /// # Safety
    /// As for [`Functions::init`]; `state` is its result.
    pub(crate) unsafe fn free(&self, context: *mut Context, state: *mut c_void) {
        // SAFETY: as in `init`.
        unsafe {
            match self.free {
                Function::Unset => {}
                Function::Plain(f) => f(context, state),
                Function::WithData(f) => f(self.user_data.0, context, state),
            }
        }
    }

    /// Prepares a node; `None` without a function for it.
    ///
    /// # Safety
    /// As for [`Functions::init`]; the node belongs to the context.
    pub(crate) unsafe fn prepare(&self, context: *mut Context, node: *mut Node) -> Option<Status> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.call(self.prepare, context, node) }
    }

    /// Runs a node; `None` without a function for it.
    ///
    /// # Safety
    /// As for [`Functions::prepare`].
    pub(crate) unsafe fn invoke(&self, context: *mut Context, node: *mut Node) -> Option<Status> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.call(self.invoke, context, node) }
    }

    unsafe fn call(
        &self,
        function: Function<NodeFn, NodeFnWithData>,
        context: *mut Context,
        node: *mut Node,
    ) -> Option<Status> {
        // SAFETY: as in `init`.
        unsafe {
            match function {
                Function::Unset => None,
                Function::Plain(f) => Some(f(context, node)),
                Function::WithData(f) => Some(f(self.user_data.0, context, node)),
            }
        }
    }
}

impl From<Registration> for Functions {
    fn from(registration: Registration) -> Self {
        Functions {
            init: Function::plain(registration.init),
            free: Function::plain(registration.free),
            prepare: Function::plain(registration.prepare),
            invoke: Function::plain(registration.invoke),
            user_data: UserData(std::ptr::null_mut()),
        }
    }
}

/// The object behind a `TfLiteOperator*`.
#[derive(Debug)]
pub(crate) struct Operator {
    pub(crate) code: c_int,
    name: Name,
    pub(crate) version: c_int,
    functions: Mutex<Functions>,
}

/// The name of a custom op.
#[derive(Debug)]
enum Name {
    None,
    /// The application's pointer, which is returned to the application, and a copy of the name.
    Theirs(CustomName, CString),
    Ours(CString),
}

/// A pointer that is only passed back.
#[derive(Debug, Clone, Copy)]
struct CustomName(*const c_char);

// SAFETY: the pointer is only passed back to the application.
unsafe impl Send for CustomName {}
// SAFETY: as above.
unsafe impl Sync for CustomName {}

/// The opaque type of the interface.
#[repr(C)]
pub(crate) struct OperatorHandle([u8; 0]);

/// All operators.
pub(crate) static OPERATORS: Table<Operator> = Table::new(Kind::Operator as usize);

impl Operator {
    /// Returns the operator of a node of a model, without functions.
    pub(crate) fn of_op(op: &Op, version: u32) -> Self {
        let (code, name) = match op {
            Op::Builtin(code) => (code.0, Name::None),
            Op::Custom(name) => (CUSTOM, Name::Ours(crate::tensor::name(name))),
        };
        let version = c_int::try_from(version).unwrap_or(c_int::MAX);
        Operator { code, name, version, functions: Mutex::new(Functions::new(std::ptr::null_mut())) }
    }

    /// Returns the operator of a classic registration. Its name is `name`; without that, the name of the registration.
    ///
    /// # Safety
    /// The registration's name is null or a text.
    pub(crate) unsafe fn of_registration(registration: Registration, name: Option<CString>) -> Self {
        // SAFETY: guaranteed by the caller.
        let own = unsafe { crate::contain::text(registration.custom_name) }.map(Into::into);
        let name = name.or(own).map_or(Name::None, Name::Ours);
        let functions = Mutex::new(registration.into());
        Operator { code: registration.builtin_code, name, version: registration.version, functions }
    }

    /// Returns the current functions.
    pub(crate) fn functions(&self) -> Functions {
        *self.functions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of a custom op, or of a delegate's kernel.
    pub(crate) fn text(&self) -> Option<&CString> {
        match &self.name {
            Name::None => None,
            Name::Theirs(_, text) | Name::Ours(text) => Some(text),
        }
    }

    /// Returns the name for the application.
    pub(crate) fn name_pointer(&self) -> *const c_char {
        match &self.name {
            Name::None => std::ptr::null(),
            Name::Theirs(pointer, _) => pointer.0,
            Name::Ours(text) => text.as_ptr(),
        }
    }

    /// Returns the op of the operator's kernel.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a custom op without a name.
    pub(crate) fn op(&self) -> Result<Op> {
        match (self.code, self.text()) {
            (CUSTOM, Some(name)) => Ok(Op::custom(&name.to_string_lossy())),
            (CUSTOM, None) => Err(Error::InvalidInput("the custom op has no name".into())),
            (code, _) => Ok(Op::Builtin(BuiltinOp(code))),
        }
    }
}

/// Returns the operator of a handle; reports an invalid handle.
pub(crate) fn find(function: &str, handle: *const OperatorHandle) -> Option<Arc<Operator>> {
    let operator = OPERATORS.get(handle);
    if operator.is_none() {
        Reporter::default().report(&format!("{function}: the operator is null or deleted"));
    }
    operator
}

/// Changes the functions of an operator.
fn change(function: &str, handle: *mut OperatorHandle, f: impl FnOnce(&mut Functions)) -> Status {
    guard(function, ERROR, || match find(function, handle) {
        Some(operator) => {
            f(&mut operator.functions.lock().unwrap_or_else(PoisonError::into_inner));
            OK
        }
        None => ERROR,
    })
}

/// Creates an operator for an op at a version. Null for a custom op without a name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn TfLiteOperatorCreate(
    code: c_int,
    name: *const c_char,
    version: c_int,
    user_data: *mut c_void,
) -> *mut OperatorHandle {
    let function = "TfLiteOperatorCreate";
    guard(function, std::ptr::null_mut(), || {
        // SAFETY: the interface requires null or a text that outlives the operator.
        let text = unsafe { crate::contain::text(name) };
        if code == CUSTOM && text.is_none() {
            Reporter::default().report(&format!("{function}: a custom op needs a name"));
            return std::ptr::null_mut();
        }
        let name = text.map_or(Name::None, |text| Name::Theirs(CustomName(name), text.into()));
        let functions = Mutex::new(Functions::new(user_data));
        OPERATORS.insert(Operator { code, name, version, functions })
    })
}

/// Deletes an operator. Interpreters that use it keep its functions.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteOperatorDelete(operator: *mut OperatorHandle) {
    guard("TfLiteOperatorDelete", (), || drop(OPERATORS.remove(operator)));
}

/// Returns the code of the op; 0 for null.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteOperatorGetBuiltInCode(operator: *const OperatorHandle) -> c_int {
    let function = "TfLiteOperatorGetBuiltInCode";
    guard(function, 0, || find(function, operator).map_or(0, |operator| operator.code))
}

/// Returns the name of a custom op; null for others.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteOperatorGetCustomName(operator: *const OperatorHandle) -> *const c_char {
    let function = "TfLiteOperatorGetCustomName";
    guard(function, std::ptr::null(), || {
        find(function, operator).map_or(std::ptr::null(), |operator| operator.name_pointer())
    })
}

/// Returns the version; -1 for null.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteOperatorGetVersion(operator: *const OperatorHandle) -> c_int {
    guard("TfLiteOperatorGetVersion", -1, || OPERATORS.get(operator).map_or(-1, |operator| operator.version))
}

/// Returns the data that the application set.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteOperatorGetUserData(operator: *const OperatorHandle) -> *mut c_void {
    let function = "TfLiteOperatorGetUserData";
    guard(function, std::ptr::null_mut(), || {
        find(function, operator).map_or(std::ptr::null_mut(), |operator| operator.functions().user_data.0)
    })
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident, $with_data:ident: $field:ident, $plain:ty, $data:ty;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name(operator: *mut OperatorHandle, function: Option<$plain>) {
            change(stringify!($name), operator, |functions| functions.$field = Function::plain(function));
        }

        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $with_data(operator: *mut OperatorHandle, function: Option<$data>) -> Status {
            change(stringify!($with_data), operator, |functions| {
                functions.$field = Function::with_data(function);
            })
        }
    )* };
}

setters! {
    /// Sets the function that creates the state of a node's kernel.
    TfLiteOperatorSetInit, TfLiteOperatorSetInitWithData: init, Init, InitWithData;
    /// Sets the function that frees the state.
    TfLiteOperatorSetFree, TfLiteOperatorSetFreeWithData: free, Free, FreeWithData;
    /// Sets the function that prepares a node.
    TfLiteOperatorSetPrepare, TfLiteOperatorSetPrepareWithData: prepare, NodeFn, NodeFnWithData;
    /// Sets the function that runs a node.
    TfLiteOperatorSetInvoke, TfLiteOperatorSetInvokeWithData: invoke, NodeFn, NodeFnWithData;
}

/// Has no effect: asynchronous kernels are not called.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteOperatorSetAsyncKernel(_: *mut OperatorHandle, _: *const c_void) {}

/// Accepts null only: asynchronous kernels are not called.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteOperatorSetAsyncKernelWithData(
    operator: *mut OperatorHandle,
    kernel: *const c_void,
) -> Status {
    let function = "TfLiteOperatorSetAsyncKernelWithData";
    guard(function, ERROR, || {
        if find(function, operator).is_none() {
            return ERROR;
        }
        if !kernel.is_null() {
            Reporter::default().report(&format!("{function}: asynchronous kernels are not supported"));
            return ERROR;
        }
        OK
    })
}

/// Has no effect: inputs and outputs never share memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn TfLiteOperatorSetInplaceOperator(_: *mut OperatorHandle, _: u64) {}
