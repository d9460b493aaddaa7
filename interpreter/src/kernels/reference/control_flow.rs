//! CALL_ONCE, IF, WHILE.

use delegraph_core::kernel::{InitContext, InvokeContext, Kernel, Placement, PrepareContext, RuntimeTensor};
use delegraph_core::ops::control_flow::{CallOnceParams, IfParams, WhileParams};
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Registration, Result, Shape};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    // What is called may have side effects.
    resolver
        .add_builtin(
            BuiltinOp::CALL_ONCE,
            Registration::new(|_| Ok(CallOnce::default())).with_side_effects(),
            1,
        )
        .add_builtin(BuiltinOp::IF, Registration::new(|_| Ok(If::default())).with_side_effects(), 1)
        .add_builtin(BuiltinOp::WHILE, Registration::new(While::new).with_side_effects(), 1);
}

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
        if cx.host().resources().first_time(self.callee) {
            cx.call(self.callee, 0..0)?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct If {
    callees: [usize; 2],
}

impl Kernel for If {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let p = cx.params::<IfParams>()?;
        self.callees = [index(p.else_subgraph_index)?, index(p.then_subgraph_index)?];
        let condition = cx.input(0)?;
        check_condition(condition.tensor())?;
        let shapes =
            (1..cx.num_inputs()).map(|i| Ok(cx.input(i)?.shape().clone())).collect::<Result<Vec<_>>>()?;
        let otherwise = cx.host().prepare_callee(self.callees[0], &shapes)?;
        let then = cx.host().prepare_callee(self.callees[1], &shapes)?;
        check_count(cx, self.callees[0], otherwise.len())?;
        check_count(cx, self.callees[1], then.len())?;
        for (i, shapes) in otherwise.into_iter().zip(then).enumerate() {
            set_output(cx, i, shapes.0.filter(|shape| Some(shape) == shapes.1.as_ref()))?;
        }
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let condition = holds(cx.input_tensor(0)?)?;
        cx.call(self.callees[usize::from(condition)], 1..cx.num_inputs())
    }
}

struct While {
    condition: usize,
    body: usize,
    /// What the loop works on: the inputs at first, then what the body returns.
    state: Vec<RuntimeTensor>,
    /// No pass changes a shape.
    stable: bool,
}

impl While {
    fn new(cx: &InitContext<'_>) -> Result<Self> {
        let inputs = cx.node.inputs.iter().flatten();
        let state = inputs.filter_map(|id| cx.subgraph.tensors.get(id.0)).map(RuntimeTensor::new).collect();
        Ok(While { condition: 0, body: 0, state, stable: false })
    }

    fn step(&mut self, cx: &mut InvokeContext<'_>) -> Result<bool> {
        let state: Vec<&RuntimeTensor> = self.state.iter().collect();
        let condition = cx.host().call(self.condition, &state)?;
        let condition =
            condition.first().ok_or_else(|| Error::InvalidNode("the condition returns nothing".into()))?;
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
        let p = cx.params::<WhileParams>()?;
        (self.condition, self.body) = (index(p.cond_subgraph_index)?, index(p.body_subgraph_index)?);
        let shapes =
            (0..cx.num_inputs()).map(|i| Ok(cx.input(i)?.shape().clone())).collect::<Result<Vec<_>>>()?;
        if cx.num_outputs() != shapes.len() {
            return Err(Error::InvalidNode(format!(
                "{} inputs, but {} outputs",
                shapes.len(),
                cx.num_outputs()
            )));
        }
        let condition = cx.host().prepare_callee(self.condition, &shapes)?;
        if condition.len() != 1 {
            return Err(Error::InvalidNode(format!("the condition returns {} tensors", condition.len())));
        }
        let body = cx.host().prepare_callee(self.body, &shapes)?;
        check_count(cx, self.body, body.len())?;
        // Shapes that a pass changes are known only when the loop ends.
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
        while self.step(cx)? {}
        for (i, state) in self.state.iter().enumerate() {
            if !self.stable {
                cx.resize_output_bytes(i, state.shape.clone(), state.bytes().len())?;
            }
            let output = cx.output_bytes(i)?;
            if output.len() != state.bytes().len() {
                return Err(Error::Kernel(format!(
                    "the loop left {} for an output of another size",
                    state.shape
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

fn check_count(cx: &PrepareContext<'_>, callee: usize, returns: usize) -> Result<()> {
    if returns == cx.num_outputs() {
        return Ok(());
    }
    let outputs = cx.num_outputs();
    Err(Error::InvalidNode(format!(
        "subgraph {callee} returns {returns} tensors, the node has {outputs} outputs"
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

fn holds(tensor: &RuntimeTensor) -> Result<bool> {
    check_condition(tensor)?;
    Ok(tensor.elements::<Bool>()?.first().is_some_and(|b| b.get()))
}

fn copy(from: &RuntimeTensor, to: &mut RuntimeTensor) -> Result<()> {
    if from.ty != to.ty {
        return Err(Error::InvalidNode(format!("the loop turns {} into {}", to.ty, from.ty)));
    }
    if to.shape != from.shape {
        to.shape = from.shape.clone();
    }
    to.allocate_bytes(Placement::Dynamic, from.bytes().len())?;
    to.bytes_mut()?.copy_from_slice(from.bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use delegraph_core::graph::{Model, Node, Subgraph, Tensor, TensorId};
    use delegraph_core::ops::binary::AddParams;
    use delegraph_core::ops::variables::VarHandleParams;
    use delegraph_core::ops::{Activation, Params};
    use delegraph_core::TensorType;

    use super::*;
    use crate::{Interpreter, ReferenceOpResolver};

    /// A subgraph over these tensors; `I32` ones with a number are constants, found in the model's bytes.
    struct Graph(Subgraph);

    /// The bytes of every model here: the constants 1 and 5.
    const BYTES: [u8; 8] = [1, 0, 0, 0, 5, 0, 0, 0];

    impl Graph {
        fn new(tensors: &[(TensorType, Option<usize>)], inputs: &[usize], outputs: &[usize]) -> Self {
            let ids = |ids: &[usize]| ids.iter().map(|&i| TensorId(i)).collect();
            let tensor = |&(ty, at): &(TensorType, Option<usize>)| Tensor {
                data: at.map(|at| at..at + 4),
                ..Tensor::new("", ty, [1])
            };
            Graph(Subgraph {
                tensors: tensors.iter().map(tensor).collect(),
                inputs: ids(inputs),
                outputs: ids(outputs),
                ..Default::default()
            })
        }

        fn node(mut self, op: BuiltinOp, params: Params, inputs: &[usize], outputs: &[usize]) -> Self {
            let inputs = inputs.iter().map(|&i| Some(TensorId(i)));
            self.0.nodes.push(Node::new(op, 1, params, inputs, outputs.iter().map(|&i| TensorId(i))));
            self
        }
    }

    fn interpreter(graphs: Vec<Graph>) -> Result<Interpreter> {
        let model = Model::from_subgraphs(BYTES.to_vec(), graphs.into_iter().map(|g| g.0).collect())?;
        Interpreter::builder(model).resolver(ReferenceOpResolver::new()).build()
    }

    fn run(interpreter: &mut Interpreter, input: Option<i32>) -> Result<i32> {
        if let Some(input) = input {
            interpreter.input_bytes_mut(0)?.copy_from_slice(&input.to_le_bytes());
        }
        interpreter.invoke()?;
        Ok(interpreter.output_tensor(0)?.elements::<i32>()?[0])
    }

    fn add() -> Params {
        Params::Add(AddParams { fused_activation_function: Activation::None, pot_scale_int16: false })
    }

    use TensorType::{Bool as B, Int32 as I, Resource as R};

    /// `x + 1`
    fn increment() -> Graph {
        Graph::new(&[(I, None), (I, Some(0)), (I, None)], &[0], &[2]).node(
            BuiltinOp::ADD,
            add(),
            &[0, 1],
            &[2],
        )
    }

    /// `x < 5`
    fn below_five() -> Graph {
        let graph = Graph::new(&[(I, None), (I, Some(4)), (B, None)], &[0], &[2]);
        graph.node(BuiltinOp::LESS, Params::None, &[0, 1], &[2])
    }

    #[test]
    fn loops_while_the_condition_holds() {
        let params = Params::While(WhileParams { cond_subgraph_index: 1, body_subgraph_index: 2 });
        let main = Graph::new(&[(I, None), (I, None)], &[0], &[1]).node(BuiltinOp::WHILE, params, &[0], &[1]);
        let mut interpreter = interpreter(vec![main, below_five(), increment()]).unwrap();
        for (from, to) in [(-2, 5), (7, 7), (4, 5)] {
            assert_eq!(run(&mut interpreter, Some(from)).unwrap(), to);
        }
    }

    #[test]
    fn takes_one_branch() {
        let params = Params::If(IfParams { then_subgraph_index: 1, else_subgraph_index: 2 });
        let tensors = [(I, None), (I, Some(4)), (B, None), (I, None)];
        let main = Graph::new(&tensors, &[0], &[3]).node(BuiltinOp::LESS, Params::None, &[0, 1], &[2]).node(
            BuiltinOp::IF,
            params,
            &[2, 0],
            &[3],
        );
        let double =
            Graph::new(&[(I, None), (I, None)], &[0], &[1]).node(BuiltinOp::ADD, add(), &[0, 0], &[1]);
        let mut interpreter = interpreter(vec![main, increment(), double]).unwrap();
        assert_eq!(run(&mut interpreter, Some(4)).unwrap(), 5);
        assert_eq!(run(&mut interpreter, Some(6)).unwrap(), 12);
    }

    #[test]
    fn variables_are_initialized_once_and_keep_their_value() {
        let handle =
            || Params::VarHandle(VarHandleParams { container: "".into(), shared_name: "count".into() });
        let tensors = [(R, None), (I, None), (I, Some(0)), (I, None)];
        let main = |once| {
            let graph = Graph::new(&tensors, &[], &[3]);
            let once = Params::CallOnce(CallOnceParams { init_subgraph_index: once });
            graph
                .node(BuiltinOp::CALL_ONCE, once, &[], &[])
                .node(BuiltinOp::VAR_HANDLE, handle(), &[], &[0])
                .node(BuiltinOp::READ_VARIABLE, Params::None, &[0], &[1])
                .node(BuiltinOp::ADD, add(), &[1, 2], &[3])
                .node(BuiltinOp::ASSIGN_VARIABLE, Params::None, &[0, 3], &[])
        };
        let five = Graph::new(&[(R, None), (I, Some(4))], &[], &[])
            .node(BuiltinOp::VAR_HANDLE, handle(), &[], &[0])
            .node(BuiltinOp::ASSIGN_VARIABLE, Params::None, &[0, 1], &[]);
        let nothing = Graph::new(&[], &[], &[]);
        let mut counting = interpreter(vec![main(1), five]).unwrap();
        for want in [6, 7, 8] {
            assert_eq!(run(&mut counting, None).unwrap(), want);
        }
        let e = run(&mut interpreter(vec![main(1), nothing]).unwrap(), None).unwrap_err();
        assert!(e.to_string().ends_with("node 2 (READ_VARIABLE v1): the variable has no value yet"), "{e}");
    }

    #[test]
    fn callees_must_fit() {
        let params = Params::While(WhileParams { cond_subgraph_index: 1, body_subgraph_index: 2 });
        let main = Graph::new(&[(I, None), (I, None)], &[0], &[1]).node(BuiltinOp::WHILE, params, &[0], &[1]);
        let e = interpreter(vec![main, increment(), increment()]).and_then(|mut i| run(&mut i, Some(1)));
        let e = e.unwrap_err().to_string();
        assert!(e.contains("the condition must be one BOOL, got INT32 [1]"), "{e}");
    }
}
