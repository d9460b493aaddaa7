//! The application's kernels in options: their ops, and the registrations for the runtime.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use delegraph::core::Op;
use delegraph::core::error::{Error, Result};
use delegraph::core::graph::Subgraph;
use delegraph::core::kernel::InitContext;
use delegraph::{Model, MutableOpResolver, Registration};

use crate::abi;
use crate::context::{Node, Owner};
use crate::kernel::ForeignKernel;
use crate::operator::{OPERATORS, Operator, OperatorHandle};
use crate::report::{Reporter, UserData};

/// A kernel of the application for a range of versions of an op.
#[derive(Debug, Clone)]
pub(crate) struct Custom {
    pub(crate) op: Op,
    pub(crate) versions: RangeInclusive<u32>,
    pub(crate) operator: Arc<Operator>,
}

pub(crate) type FindBuiltin = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> *const abi::Registration;
pub(crate) type FindCustom =
    unsafe extern "C" fn(*mut c_void, *const c_char, c_int) -> *const abi::Registration;
pub(crate) type FindBuiltinOperator =
    unsafe extern "C" fn(*mut c_void, c_int, c_int) -> *const OperatorHandle;
pub(crate) type FindCustomOperator =
    unsafe extern "C" fn(*mut c_void, *const c_char, c_int) -> *const OperatorHandle;

/// Functions of the application that find the kernels of ops, and replace all other kernels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callbacks {
    pub(crate) builtin: Option<FindBuiltin>,
    pub(crate) custom: Option<FindCustom>,
    pub(crate) builtin_operator: Option<FindBuiltinOperator>,
    pub(crate) custom_operator: Option<FindCustomOperator>,
    pub(crate) user_data: UserData,
}

impl Callbacks {
    pub(crate) fn is_empty(&self) -> bool {
        self.builtin.is_none()
            && self.custom.is_none()
            && self.builtin_operator.is_none()
            && self.custom_operator.is_none()
    }

    /// Returns the kernel for an op at a version.
    fn find(&self, op: &Op, version: u32) -> Option<Arc<Operator>> {
        let (data, version) = (self.user_data.0, c_int::try_from(version).ok()?);
        let name = if let Op::Custom(name) = op { crate::tensor::name(name) } else { CString::default() };
        // SAFETY: the application passed the functions for this use. A registration that they return is valid until the
        // interpreter is created.
        unsafe {
            let operator = match op {
                Op::Builtin(op) => self.builtin_operator.map(|f| f(data, op.0, version)),
                Op::Custom(_) => self.custom_operator.map(|f| f(data, name.as_ptr(), version)),
            };
            if let Some(operator) = operator.and_then(|operator| OPERATORS.get(operator)) {
                return Some(operator);
            }
            let registration = match op {
                Op::Builtin(op) => self.builtin.map(|f| f(data, op.0, version)),
                Op::Custom(_) => self.custom.map(|f| f(data, name.as_ptr(), version)),
            };
            let registration = registration.filter(|r| !r.is_null() && r.is_aligned())?;
            let name = matches!(op, Op::Custom(_)).then_some(name);
            Some(Arc::new(Operator::of_registration(*registration, name)))
        }
    }
}

/// The kernels of the application for one interpreter, and their contexts.
pub(crate) struct Kernels {
    model: Arc<Model>,
    reporter: Reporter,
    /// By the address of the subgraph and its numbers of tensors and nodes. An interpreter keeps the models whose
    /// subgraphs it runs. A model that replaces another is larger, so that the key differs even at the same address.
    contexts: Mutex<HashMap<(usize, usize, usize), Arc<Owner>>>,
}

impl Kernels {
    pub(crate) fn new(model: &Arc<Model>, reporter: Reporter) -> Arc<Self> {
        Arc::new(Kernels { model: model.clone(), reporter, contexts: Mutex::default() })
    }

    /// Registers the kernels of a list.
    pub(crate) fn add(self: &Arc<Self>, list: &[Custom], resolver: &mut MutableOpResolver) {
        for custom in list {
            self.register(&custom.op, custom.versions.clone(), &custom.operator, resolver);
        }
    }

    /// Registers the kernels that functions of the application find for the ops of the model.
    pub(crate) fn add_found(self: &Arc<Self>, callbacks: &Callbacks, resolver: &mut MutableOpResolver) {
        let mut asked = std::collections::HashSet::new();
        let model = self.model.clone();
        for node in model.subgraphs().iter().flat_map(|graph| graph.nodes()) {
            if asked.insert((node.op(), node.version()))
                && let Some(operator) = callbacks.find(node.op(), node.version())
            {
                self.register(node.op(), node.version()..=node.version(), &operator, resolver);
            }
        }
    }

    fn register(
        self: &Arc<Self>,
        op: &Op,
        versions: RangeInclusive<u32>,
        operator: &Arc<Operator>,
        resolver: &mut MutableOpResolver,
    ) {
        let (kernels, operator, shown) = (self.clone(), operator.clone(), op.clone());
        let registration = Registration::new(move |init| kernels.kernel(&shown, &operator, init));
        match op {
            Op::Builtin(op) => resolver.add_builtin(*op, registration, versions),
            Op::Custom(name) => resolver.add_custom(name, registration, versions),
        };
    }

    fn kernel(&self, op: &Op, operator: &Operator, init: &InitContext<'_>) -> Result<ForeignKernel> {
        let owner = self.context(init.subgraph);
        let node = owner.with(|context| place(init).and_then(|place| context.nodes.get(place)));
        let missing = || Error::State("the node is not one of its subgraph".into());
        let node: *mut Node = node.ok_or_else(missing)?;
        let buffer = match op {
            // SAFETY: the node belongs to the context, which is live.
            Op::Builtin(_) => (unsafe { (*node).raw.builtin_data }.cast_const().cast(), 0),
            Op::Custom(_) => (init.custom_options.as_ptr().cast(), init.custom_options.len()),
        };
        let kernel = ForeignKernel::new(op.to_string(), operator.functions(), owner, node, buffer)?;
        Ok(kernel.with_tensors(init.node.inputs(), init.node.outputs()))
    }

    fn context(&self, subgraph: &Subgraph) -> Arc<Owner> {
        let key = ((&raw const *subgraph).addr(), subgraph.tensors().len(), subgraph.nodes().len());
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        let index = self.model.subgraphs().iter().position(|own| std::ptr::eq(own, subgraph));
        let new = || Owner::of_subgraph(&self.model, subgraph, index, self.reporter);
        contexts.entry(key).or_insert_with(new).clone()
    }
}

/// Returns the number of a node in its subgraph.
fn place(init: &InitContext<'_>) -> Option<usize> {
    let nodes = init.subgraph.nodes();
    let distance = (&raw const *init.node).addr().checked_sub(nodes.as_ptr().addr())?;
    let place = distance / size_of_val(init.node);
    nodes.get(place).filter(|node| std::ptr::eq(*node, init.node)).map(|_| place)
}
