//! CALL_ONCE, IF, WHILE, CALL, STABLEHLO_WHILE, STABLEHLO_CASE, STABLEHLO_COMPOSITE.

use delegraph_core::error::counted;
use delegraph_core::kernel::{InitContext, InvokeContext, Kernel, Placement, PrepareContext, RuntimeTensor};
use delegraph_core::ops::control_flow::{
    CallOnceParams, CallParams, IfParams, StableHloCompositeParams, StablehloCaseParams,
    StablehloWhileParams, WhileParams,
};
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Registration, Result, Shape, TensorType};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    // A called subgraph may have side effects.
    let branch = |select, callees: Callees| {
        Registration::new(move |_| Ok(Branch { select, read: callees, callees: Vec::new() }))
            .with_side_effects()
    };
    let repeat = |callees: Callees| Registration::new(move |cx| While::new(cx, callees)).with_side_effects();
    let once = Registration::new(|_| Ok(CallOnce::default())).with_side_effects();
    resolver
        .add_builtin(BuiltinOp::CALL_ONCE, once, 1)
        .add_builtin(
            BuiltinOp::IF,
            branch(Select::Condition, |cx| {
                let p = cx.params::<IfParams>()?;
                Ok(vec![p.else_subgraph_index, p.then_subgraph_index])
            }),
            1,
        )
        .add_builtin(
            BuiltinOp::STABLEHLO_CASE,
            branch(Select::Index, |cx| {
                Ok(cx.params::<StablehloCaseParams>()?.branch_subgraph_indices.clone())
            }),
            1,
        )
        .add_builtin(
            BuiltinOp::STABLEHLO_COMPOSITE,
            branch(Select::Only, |cx| {
                Ok(vec![cx.params::<StableHloCompositeParams>()?.decomposition_subgraph_index])
            }),
            1,
        )
        .add_builtin(
            BuiltinOp::CALL,
            branch(Select::Only, |cx| {
                // An index that does not fit refers to no subgraph.
                Ok(vec![i32::try_from(cx.params::<CallParams>()?.subgraph).unwrap_or(-1)])
            }),
            1,
        )
        .add_builtin(
            BuiltinOp::WHILE,
            repeat(|cx| {
                let p = cx.params::<WhileParams>()?;
                Ok(vec![p.cond_subgraph_index, p.body_subgraph_index])
            }),
            1,
        )
        .add_builtin(
            BuiltinOp::STABLEHLO_WHILE,
            repeat(|cx| {
                let p = cx.params::<StablehloWhileParams>()?;
                Ok(vec![p.cond_subgraph_index, p.body_subgraph_index])
            }),
            1,
        );
}

/// The subgraphs that a node calls.
type Callees = fn(&PrepareContext<'_>) -> Result<Vec<i32>>;

#[derive(Default)]
struct CallOnce {
    callee: usize,
}

impl Kernel for CallOnce {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.callee = index(cx.params::<CallOnceParams>()?.init_subgraph_index)?;
        cx.host().prepare_callee(self.callee, &[])?;
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        if cx.host().resources().mark_initialized(self.callee) {
            cx.call(self.callee, 0..0)?;
        }
        Ok(())
    }
}

/// The operand that selects the subgraph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Select {
    /// Input 0, a boolean: the second subgraph if true.
    Condition,
    /// Input 0, an index; the last subgraph if it is out of range.
    Index,
    /// There is one subgraph.
    Only,
}

/// Runs one of several subgraphs on the inputs that follow the selecting operand.
struct Branch {
    select: Select,
    read: Callees,
    callees: Vec<usize>,
}

impl Branch {
    fn first_argument(&self) -> usize {
        usize::from(self.select != Select::Only)
    }
}

impl Kernel for Branch {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        self.callees = (self.read)(cx)?.into_iter().map(index).collect::<Result<_>>()?;
        match self.select {
            Select::Condition => check_condition(cx.input(0)?.tensor())?,
            Select::Index => check_index(cx.input(0)?.tensor())?,
            Select::Only => {}
        }
        let shapes = shapes(cx, self.first_argument())?;
        let mut outputs: Option<Vec<Option<Shape>>> = None;
        for &callee in &self.callees {
            let returned = cx.host().prepare_callee(callee, &shapes)?;
            check_count(cx, callee, returned.len())?;
            match &mut outputs {
                None => outputs = Some(returned),
                // A shape that differs between the subgraphs depends on data.
                Some(outputs) => {
                    for (shape, other) in outputs.iter_mut().zip(returned) {
                        *shape = shape.take().filter(|shape| Some(shape) == other.as_ref());
                    }
                }
            }
        }
        let outputs = outputs.ok_or_else(|| Error::InvalidNode("the node has 0 branches".into()))?;
        outputs.into_iter().enumerate().try_for_each(|(i, shape)| set_output(cx, i, shape))
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let last = self.callees.len().saturating_sub(1);
        let selected = match self.select {
            Select::Condition => holds(cx.input_tensor(0)?)?.into(),
            Select::Index => {
                let index = cx.input_tensor(0)?;
                check_index(index)?;
                let index = index.elements::<i32>()?.first().copied();
                index.and_then(|i| usize::try_from(i).ok()).unwrap_or(last).min(last)
            }
            Select::Only => 0,
        };
        let callee = self.callees.get(selected).copied();
        let callee = callee.ok_or_else(|| Error::State("the kernel was not prepared".into()))?;
        // As in TFLite, variable tensors of a called subgraph keep their values during one call, or one loop.
        cx.host().reset_callee(callee)?;
        cx.call(callee, self.first_argument()..cx.input_count())
    }
}

struct While {
    read: Callees,
    condition: usize,
    body: usize,
    /// The loop's values: the inputs at first, then the results of the body.
    state: Vec<RuntimeTensor>,
    /// Whether no iteration changes a shape.
    stable: bool,
}

impl While {
    fn new(cx: &InitContext<'_>, read: Callees) -> Result<Self> {
        let inputs = cx.node.inputs().iter().flatten();
        let state = inputs.filter_map(|id| cx.subgraph.tensors().get(id.0)).map(RuntimeTensor::new).collect();
        Ok(While { read, condition: 0, body: 0, state, stable: false })
    }

    fn step(&mut self, cx: &mut InvokeContext<'_>) -> Result<bool> {
        let state: Vec<&RuntimeTensor> = self.state.iter().collect();
        let condition = cx.host().call(self.condition, &state)?;
        let condition = condition
            .first()
            .ok_or_else(|| Error::InvalidNode("the condition returns 0 tensors, expected 1".into()))?;
        if !holds(condition)? {
            return Ok(false);
        }
        let results = cx.host().call(self.body, &state)?;
        let results = results.into_iter().zip(&mut self.state);
        results.into_iter().try_for_each(|(result, state)| copy(result, state))?;
        Ok(true)
    }
}

impl Kernel for While {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        if let [condition, body] = *(self.read)(cx)? {
            (self.condition, self.body) = (index(condition)?, index(body)?);
        }
        let shapes = shapes(cx, 0)?;
        if cx.output_count() != shapes.len() {
            return Err(Error::InvalidNode(format!(
                "the node has {} and {}; the numbers must be equal",
                counted(shapes.len(), "input"),
                counted(cx.output_count(), "output")
            )));
        }
        let condition = cx.host().prepare_callee(self.condition, &shapes)?;
        if condition.len() != 1 {
            return Err(Error::InvalidNode(format!(
                "the condition returns {}, expected 1",
                counted(condition.len(), "tensor")
            )));
        }
        let body = cx.host().prepare_callee(self.body, &shapes)?;
        check_count(cx, self.body, body.len())?;
        // Shapes that an iteration changes are known only when the loop ends.
        self.stable = body.iter().zip(&shapes).all(|(after, before)| after.as_ref() == Some(before));
        for (i, shape) in shapes.into_iter().enumerate() {
            set_output(cx, i, self.stable.then_some(shape))?;
        }
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        for (i, state) in self.state.iter_mut().enumerate() {
            copy(cx.input_tensor(i)?, state)?;
        }
        cx.host().reset_callee(self.condition)?;
        cx.host().reset_callee(self.body)?;
        while self.step(cx)? {}
        for (i, state) in self.state.iter().enumerate() {
            if !self.stable || state.ty == TensorType::String {
                cx.resize_output_bytes(i, state.shape.clone(), state.bytes().len())?;
            }
            let output = cx.output_bytes(i)?;
            if output.len() != state.bytes().len() {
                return Err(Error::Kernel(format!(
                    "the loop ended with shape {} ({}) for output {i}, which has {}",
                    state.shape,
                    counted(state.bytes().len(), "byte"),
                    counted(output.len(), "byte")
                )));
            }
            output.copy_from_slice(state.bytes());
        }
        Ok(())
    }
}

fn index(subgraph: i32) -> Result<usize> {
    usize::try_from(subgraph).map_err(|_| Error::InvalidNode(format!("subgraph {subgraph} does not exist")))
}

/// Shapes of the inputs from `first` on.
fn shapes(cx: &PrepareContext<'_>, first: usize) -> Result<Vec<Shape>> {
    (first..cx.input_count()).map(|i| Ok(cx.input(i)?.shape().clone())).collect()
}

fn check_count(cx: &PrepareContext<'_>, callee: usize, returns: usize) -> Result<()> {
    if returns == cx.output_count() {
        return Ok(());
    }
    let outputs = cx.output_count();
    Err(Error::InvalidNode(format!(
        "subgraph {callee} returns {}, the node has {}",
        counted(returns, "tensor"),
        counted(outputs, "output")
    )))
}

fn set_output(cx: &mut PrepareContext<'_>, i: usize, shape: Option<Shape>) -> Result<()> {
    match shape {
        Some(shape) => cx.set_output_shape(i, shape),
        None => cx.set_output_data_dependent(i),
    }
}

fn check_condition(tensor: &RuntimeTensor) -> Result<()> {
    if tensor.ty == Bool::TYPE && tensor.shape.elements() == 1 {
        return Ok(());
    }
    Err(Error::InvalidNode(format!("the condition must be one BOOL, got {} {}", tensor.ty, tensor.shape)))
}

fn check_index(tensor: &RuntimeTensor) -> Result<()> {
    if tensor.ty == i32::TYPE && tensor.shape.elements() == 1 {
        return Ok(());
    }
    Err(Error::InvalidNode(format!("the index must be one INT32, got {} {}", tensor.ty, tensor.shape)))
}

fn holds(tensor: &RuntimeTensor) -> Result<bool> {
    check_condition(tensor)?;
    Ok(tensor.elements::<Bool>()?.first().is_some_and(|b| b.get()))
}

fn copy(from: &RuntimeTensor, to: &mut RuntimeTensor) -> Result<()> {
    if from.ty != to.ty {
        return Err(Error::InvalidNode(format!("the loop changes a tensor from {} to {}", to.ty, from.ty)));
    }
    if to.shape != from.shape {
        to.shape = from.shape.clone();
    }
    to.allocate_bytes(Placement::Dynamic, from.bytes().len())?;
    to.bytes_mut()?.copy_from_slice(from.bytes());
    Ok(())
}
