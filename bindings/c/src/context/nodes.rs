//! The nodes of a context: `TfLiteNode`, its parts, and the operator of each node.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use delegraph::core::Op;
use delegraph::core::graph::{Node as FileNode, Subgraph};
use delegraph_litert::{Structure, abi};

use crate::abi::{IntArray, OwnRegistration, Registration};
use crate::arrays::{Ints, int};
use crate::operator::{OPERATORS, Operator, OperatorHandle};

/// The target of a `TfLiteOpaqueNode*` or `TfLiteNode*` of this library.
#[repr(C)]
pub(crate) struct Node {
    pub(crate) raw: abi::Node,
    pub(crate) operator: *mut OperatorHandle,
    registration: OwnRegistration,
    _inputs: Ints,
    _outputs: Ints,
    _intermediates: Ints,
    _params: Option<Structure>,
}

/// The nodes of a context, each at a fixed address.
#[derive(Default)]
pub(crate) struct Nodes {
    all: Vec<*mut Node>,
    operators: Vec<*mut OperatorHandle>,
}

impl Nodes {
    /// Returns the nodes of a subgraph. `options` returns the options of a custom op.
    pub(crate) fn of<'a>(subgraph: &'a Subgraph, options: impl Fn(&'a FileNode) -> &'a [u8]) -> Self {
        let mut nodes = Nodes::default();
        let mut known: HashMap<(&Op, u32), *mut OperatorHandle> = HashMap::new();
        for file in subgraph.nodes() {
            let operator = *known.entry((file.op(), file.version())).or_insert_with(|| {
                let operator = OPERATORS.insert(Operator::of_op(file.op(), file.version()));
                nodes.operators.push(operator);
                operator
            });
            let (inputs, outputs) = (optional(file.inputs()), Ints::of(file.outputs().iter().map(|id| id.0)));
            let options = if let Op::Custom(_) = file.op() { options(file) } else { &[] };
            let params = match file.op() {
                Op::Builtin(op) => Structure::write(*op, file.params()).ok().flatten(),
                Op::Custom(_) => None,
            };
            let node = Node::new(operator, inputs, outputs, optional(file.intermediates()), options, params);
            nodes.all.push(Box::into_raw(Box::new(node)));
        }
        nodes
    }

    /// Returns the number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns a node.
    pub(crate) fn get(&self, index: usize) -> Option<*mut Node> {
        self.all.get(index).copied()
    }

    /// Adds the node of a delegate's kernel.
    pub(crate) fn add(&mut self, operator: *mut OperatorHandle, inputs: Ints, outputs: Ints) -> *mut Node {
        let node = Box::into_raw(Box::new(Node::new(operator, inputs, outputs, Ints::new(&[]), &[], None)));
        self.all.push(node);
        node
    }

    /// Takes ownership of an operator, which is deleted with the nodes.
    pub(crate) fn own(&mut self, operator: *mut OperatorHandle) {
        if !self.operators.contains(&operator) {
            self.operators.push(operator);
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for &node in &self.all {
            // SAFETY: the pointer is that of a box, which is dropped once.
            drop(unsafe { Box::from_raw(node) });
        }
        self.operators.iter().for_each(|operator| drop(OPERATORS.remove(*operator)));
    }
}

impl Node {
    fn new(
        operator: *mut OperatorHandle,
        inputs: Ints,
        outputs: Ints,
        intermediates: Ints,
        options: &[u8],
        params: Option<Structure>,
    ) -> Self {
        let raw = abi::Node {
            inputs: inputs.pointer(),
            outputs: outputs.pointer(),
            intermediates: intermediates.pointer(),
            temporaries: crate::arrays::new(&[]),
            user_data: std::ptr::null_mut(),
            builtin_data: params.as_ref().map_or(std::ptr::null_mut(), |params| params.as_ptr().cast_mut()),
            custom_initial_data: if options.is_empty() { std::ptr::null() } else { options.as_ptr().cast() },
            custom_initial_data_size: int(options.len()),
            delegate: std::ptr::null_mut(),
            might_have_side_effect: 0,
        };
        let known = OPERATORS.get(operator);
        let common = Registration {
            init: None,
            free: None,
            prepare: None,
            invoke: None,
            profiling_string: std::ptr::null(),
            builtin_code: known.as_ref().map_or(0, |operator| operator.code),
            custom_name: known.as_ref().map_or(std::ptr::null(), |operator| operator.name_pointer()),
            version: known.as_ref().map_or(0, |operator| operator.version),
        };
        let registration =
            OwnRegistration { common, operator: operator.cast::<c_void>(), later: [std::ptr::null(); 4] };
        Node {
            raw,
            operator,
            registration,
            _inputs: inputs,
            _outputs: outputs,
            _intermediates: intermediates,
            _params: params,
        }
    }

    /// Returns the registration for code with the classic interface.
    pub(crate) fn registration(&mut self) -> *mut Registration {
        &raw mut self.registration.common
    }

    /// Returns the temporaries that the kernel set.
    pub(crate) fn temporaries(&self) -> &[c_int] {
        // SAFETY: null, or an array that this library or the kernel allocated.
        unsafe { crate::arrays::ints(self.raw.temporaries) }
    }

    /// Sets the temporaries.
    pub(crate) fn set_temporaries(&mut self, temporaries: *mut IntArray) {
        // SAFETY: an array of the C library's memory that has no other owner.
        unsafe { crate::arrays::TfLiteIntArrayFree(self.raw.temporaries) };
        self.raw.temporaries = temporaries;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.set_temporaries(std::ptr::null_mut());
    }
}

/// Returns tensors as indices; -1 for an omitted one.
fn optional(ids: &[Option<delegraph::core::TensorId>]) -> Ints {
    Ints::new(&ids.iter().map(|id| id.map_or(-1, |id| int(id.0))).collect::<Vec<_>>())
}
