//! CALL_ONCE, IF, WHILE, CALL, STABLEHLO_WHILE, STABLEHLO_CASE, STABLEHLO_COMPOSITE.

use delegraph_core::kernel::{InitContext, InvokeContext, Kernel, Placement, PrepareContext, RuntimeTensor};
use delegraph_core::ops::control_flow::{
    CallOnceParams, CallParams, IfParams, StableHLOCompositeParams, StablehloCaseParams,
    StablehloWhileParams, WhileParams,
};
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Registration, Result, Shape, TensorType};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    // What is called may have side effects.
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
                Ok(vec![cx.params::<StableHLOCompositeParams>()?.decomposition_subgraph_index])
            }),
            1,
        )
        .add_builtin(
            BuiltinOp::CALL,
            branch(Select::Only, |cx| {
                // Any index that is too large does not exist.
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
        if cx.host().resources().first_time(self.callee) {
            cx.call(self.callee, 0..0)?;
        }
        Ok(())
    }
}

/// What says which of several subgraphs runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Select {
    /// Input 0, a boolean: the second where it is true.
    Condition,
    /// Input 0, an index; the last subgraph where it is out of range.
    Index,
    /// There is one.
    Only,
}

/// Runs one of several subgraphs on the inputs that do not say which.
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
                // A shape that differs from one to the other depends on data.
                Some(outputs) => {
                    for (shape, other) in outputs.iter_mut().zip(returned) {
                        *shape = shape.take().filter(|shape| Some(shape) == other.as_ref());
                    }
                }
            }
        }
        let outputs = outputs.ok_or_else(|| Error::InvalidNode("there is no subgraph to run".into()))?;
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
        // As the field has it, what a called subgraph remembers in variable tensors lasts for one call, or loop.
        cx.host().reset_callee(callee)?;
        cx.call(callee, self.first_argument()..cx.num_inputs())
    }
}

struct While {
    read: Callees,
    condition: usize,
    body: usize,
    /// What the loop works on: the inputs at first, then what the body returns.
    state: Vec<RuntimeTensor>,
    /// No pass changes a shape.
    stable: bool,
}

impl While {
    fn new(cx: &InitContext<'_>, read: Callees) -> Result<Self> {
        let inputs = cx.node.inputs.iter().flatten();
        let state = inputs.filter_map(|id| cx.subgraph.tensors.get(id.0)).map(RuntimeTensor::new).collect();
        Ok(While { read, condition: 0, body: 0, state, stable: false })
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
        if let [condition, body] = *(self.read)(cx)? {
            (self.condition, self.body) = (index(condition)?, index(body)?);
        }
        let shapes = shapes(cx, 0)?;
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

/// The shapes of the inputs from `first` on.
fn shapes(cx: &PrepareContext<'_>, first: usize) -> Result<Vec<Shape>> {
    (first..cx.num_inputs()).map(|i| Ok(cx.input(i)?.shape().clone())).collect()
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
    use delegraph_core::ops::binary::AddParams;
    use delegraph_core::ops::concatenation::ConcatenationParams;
    use delegraph_core::ops::svdf::SVDFParams;
    use delegraph_core::ops::variables::VarHandleParams;
    use delegraph_core::ops::{Activation, Params};
    use delegraph_core::{ModelBuilder, SubgraphBuilder, TensorId, TensorType};

    use super::*;
    use crate::{Interpreter, ReferenceOpResolver};

    /// A subgraph over tensors of one element; those with a number are constants.
    struct Graph(SubgraphBuilder);

    impl Graph {
        fn new(tensors: &[(TensorType, Option<i32>)], inputs: &[usize], outputs: &[usize]) -> Self {
            let mut graph = SubgraphBuilder::new("");
            for (i, &(ty, value)) in tensors.iter().enumerate() {
                match value {
                    Some(value) => graph.constant("", [1], &[value]),
                    None if inputs.contains(&i) => graph.input("", ty, [1]),
                    None => graph.tensor("", ty, [1]),
                };
            }
            graph.outputs(outputs.iter().copied().map(TensorId));
            Graph(graph)
        }

        fn node(mut self, op: BuiltinOp, params: Params, inputs: &[usize], outputs: &[usize]) -> Self {
            let ids = |ids: &[usize]| ids.iter().copied().map(TensorId).collect::<Vec<_>>();
            self.0.node(op, params).inputs(ids(inputs)).writes(ids(outputs));
            self
        }
    }

    fn interpreter(graphs: Vec<Graph>) -> Result<Interpreter> {
        let model = graphs.into_iter().fold(ModelBuilder::new(), |model, graph| model.subgraph(graph.0));
        Interpreter::builder(model.build()?).resolver(ReferenceOpResolver::new()).build()
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
        Graph::new(&[(I, None), (I, Some(1)), (I, None)], &[0], &[2]).node(
            BuiltinOp::ADD,
            add(),
            &[0, 1],
            &[2],
        )
    }

    /// `x + x`
    fn double() -> Graph {
        Graph::new(&[(I, None), (I, None)], &[0], &[1]).node(BuiltinOp::ADD, add(), &[0, 0], &[1])
    }

    /// `x < 5`
    fn below_five() -> Graph {
        let graph = Graph::new(&[(I, None), (I, Some(5)), (B, None)], &[0], &[2]);
        graph.node(BuiltinOp::LESS, Params::None, &[0, 1], &[2])
    }

    #[test]
    fn loops_while_the_condition_holds() {
        let params = Params::While(WhileParams { cond_subgraph_index: 1, body_subgraph_index: 2 });
        let stablehlo = StablehloWhileParams { cond_subgraph_index: 1, body_subgraph_index: 2 }.into();
        for (op, params) in [(BuiltinOp::WHILE, params), (BuiltinOp::STABLEHLO_WHILE, stablehlo)] {
            let main = Graph::new(&[(I, None), (I, None)], &[0], &[1]).node(op, params, &[0], &[1]);
            let mut interpreter = interpreter(vec![main, below_five(), increment()]).unwrap();
            for (from, to) in [(-2, 5), (7, 7), (4, 5)] {
                assert_eq!(run(&mut interpreter, Some(from)).unwrap(), to);
            }
        }
    }

    #[test]
    fn takes_one_branch() {
        let params = Params::If(IfParams { then_subgraph_index: 1, else_subgraph_index: 2 });
        let tensors = [(I, None), (I, Some(5)), (B, None), (I, None)];
        let main = Graph::new(&tensors, &[0], &[3]).node(BuiltinOp::LESS, Params::None, &[0, 1], &[2]).node(
            BuiltinOp::IF,
            params,
            &[2, 0],
            &[3],
        );
        let mut interpreter = interpreter(vec![main, increment(), double()]).unwrap();
        assert_eq!(run(&mut interpreter, Some(4)).unwrap(), 5);
        assert_eq!(run(&mut interpreter, Some(6)).unwrap(), 12);
    }

    #[test]
    fn an_index_selects_a_branch() {
        let case =
            |branches: &[i32]| StablehloCaseParams { branch_subgraph_indices: branches.to_vec() }.into();
        let main = |branches| {
            let graph = Graph::new(&[(I, None), (I, Some(5)), (I, None)], &[0], &[2]);
            graph.node(BuiltinOp::STABLEHLO_CASE, case(branches), &[0, 1], &[2])
        };
        let mut two = interpreter(vec![main(&[2, 1]), increment(), double()]).unwrap();
        for (index, want) in [(0, 10), (1, 6), (2, 6), (-1, 6)] {
            assert_eq!(run(&mut two, Some(index)).unwrap(), want, "index {index}");
        }
        let e = interpreter(vec![main(&[])]).and_then(|mut i| run(&mut i, Some(1))).unwrap_err().to_string();
        assert!(e.ends_with("there is no subgraph to run"), "{e}");
        let e = interpreter(vec![main(&[1]), below_five()]).and_then(|mut i| run(&mut i, Some(1)));
        let e = e.unwrap_err().to_string();
        assert!(e.contains("subgraph 1 returns BOOL for an output of INT32"), "{e}");
    }

    /// Where a condition decides about a shape, it follows the condition and the input from run to run.
    #[test]
    fn shapes_follow_what_runs() {
        let mut main = SubgraphBuilder::new("main");
        let (condition, x) = (main.input("condition", B, []), main.input("x", I, [2]));
        main.resizable(x, [None]);
        let (y, z) = (main.tensor("y", I, [1]), main.tensor("z", I, [1]));
        let params = IfParams { then_subgraph_index: 1, else_subgraph_index: 2 };
        main.node(BuiltinOp::IF, params).inputs([condition, x]).writes([y]);
        main.node(BuiltinOp::ADD, add()).inputs([y, y]).writes([z]);
        main.outputs([z]);
        let mut same = SubgraphBuilder::new("same");
        let x = same.input("x", I, [2]);
        same.outputs([x]);
        let mut twice = SubgraphBuilder::new("twice");
        let x = twice.input("x", I, [2]);
        let y =
            twice.node(BuiltinOp::CONCATENATION, ConcatenationParams::default()).inputs([x, x]).output("y");
        twice.outputs([y]);
        let model = ModelBuilder::new().subgraph(main).subgraph(same).subgraph(twice).build().unwrap();
        let mut interpreter = Interpreter::builder(model).build().unwrap();
        for x in [&[1, 2][..], &[3, 4, 5], &[6]] {
            interpreter.resize_input(1, &[x.len()]).unwrap();
            for condition in [true, false, true] {
                interpreter.input_mut::<Bool>(0).unwrap()[0] = condition.into();
                interpreter.input_mut::<i32>(1).unwrap().copy_from_slice(x);
                interpreter.invoke().unwrap();
                let want: Vec<i32> = x.iter().map(|v| 2 * v).collect();
                let want = if condition { want } else { want.repeat(2) };
                assert_eq!(interpreter.output::<i32>(0).unwrap(), want, "{condition} {x:?}");
            }
        }
    }

    #[test]
    fn composites_run_what_they_are_made_of() {
        let composite = |decomposition_subgraph_index| {
            StableHLOCompositeParams { decomposition_subgraph_index, ..Default::default() }.into()
        };
        // (x + 1) + (x + 1), in a subgraph that calls another one.
        let middle = Graph::new(&[(I, None), (I, None), (I, None)], &[0], &[2])
            .node(BuiltinOp::STABLEHLO_COMPOSITE, composite(2), &[0], &[1])
            .node(BuiltinOp::ADD, add(), &[1, 1], &[2]);
        let main = |op, params| Graph::new(&[(I, None), (I, None)], &[0], &[1]).node(op, params, &[0], &[1]);
        let call = CallParams { subgraph: 1 }.into();
        let mut nested = interpreter(vec![main(BuiltinOp::CALL, call), middle, increment()]).unwrap();
        assert_eq!(run(&mut nested, Some(3)).unwrap(), 8);
        let main = |callee| main(BuiltinOp::STABLEHLO_COMPOSITE, composite(callee));
        for (callee, other) in [(0, 1), (1, 0), (1, 1)] {
            let e =
                interpreter(vec![main(callee), main(other)]).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(e.contains("calls itself, directly or through others"), "{e}");
        }
        let e = interpreter(vec![main(7)]).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(e.contains("calls subgraph 7, which does not exist"), "{e}");
    }

    #[test]
    fn variables_are_initialized_once_and_keep_their_value() {
        let handle =
            || Params::VarHandle(VarHandleParams { container: "".into(), shared_name: "count".into() });
        let tensors = [(R, None), (I, None), (I, Some(1)), (I, None)];
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
        let five = Graph::new(&[(R, None), (I, Some(5))], &[], &[])
            .node(BuiltinOp::VAR_HANDLE, handle(), &[], &[0])
            .node(BuiltinOp::ASSIGN_VARIABLE, Params::None, &[0, 1], &[]);
        let nothing = Graph::new(&[], &[], &[]);
        let mut counting = interpreter(vec![main(1), five]).unwrap();
        for want in [6, 7, 8] {
            assert_eq!(run(&mut counting, None).unwrap(), want);
        }
        let e = run(&mut interpreter(vec![main(1), nothing]).unwrap(), None).unwrap_err();
        assert!(
            e.to_string().ends_with("the variable has no value yet")
                && e.to_string().contains("node 2 (READ_VARIABLE v1, writes "),
            "{e}"
        );
    }

    /// Adds its input to what it remembers, and returns the sum of two.
    fn filter(graph: &mut SubgraphBuilder, x: TensorId) -> TensorId {
        let features = graph.constant("features", [1, 1], &[1f32]);
        let times = graph.constant("times", [1, 2], &[1f32, 1.0]);
        let state = graph.variable("state", TensorType::Float32, [1, 2]);
        let params = SVDFParams { rank: 1, ..Default::default() };
        graph
            .node(BuiltinOp::SVDF, params)
            .optional_inputs([Some(x), Some(features), Some(times), None, Some(state)])
            .output("y")
    }

    #[test]
    fn called_subgraphs_remember_for_one_call() {
        let float = |graph: &mut SubgraphBuilder| graph.input("x", TensorType::Float32, [1, 1]);
        let mut callee = SubgraphBuilder::new("callee");
        let x = float(&mut callee);
        let y = filter(&mut callee, x);
        callee.outputs([y]);
        let mut main = SubgraphBuilder::new("main");
        let x = float(&mut main);
        let y = main.tensor("y", TensorType::Float32, [1, 1]);
        main.node(BuiltinOp::CALL, CallParams { subgraph: 1 }).inputs([x]).writes([y]);
        main.outputs([y]);
        let called = ModelBuilder::new().subgraph(main).subgraph(callee).build().unwrap();
        // A loop of three passes.
        let (mut main, mut condition, mut body) =
            (SubgraphBuilder::new("main"), SubgraphBuilder::new("condition"), SubgraphBuilder::new("body"));
        let x = float(&mut main);
        let zero = main.constant("zero", [], &[0i32]);
        let ends = [main.tensor("y", TensorType::Float32, [1, 1]), main.tensor("i", I, [])];
        let params = WhileParams { cond_subgraph_index: 1, body_subgraph_index: 2 };
        main.node(BuiltinOp::WHILE, params).inputs([x, zero]).writes(ends);
        main.outputs(ends);
        float(&mut condition);
        let (i, three) = (condition.input("i", I, []), condition.constant("three", [], &[3i32]));
        let more = condition.node(BuiltinOp::LESS, Params::None).inputs([i, three]).output("more");
        condition.outputs([more]);
        let x = float(&mut body);
        let (i, one) = (body.input("i", I, []), body.constant("one", [], &[1i32]));
        let y = filter(&mut body, x);
        let next = body.node(BuiltinOp::ADD, add()).inputs([i, one]).output("next");
        body.outputs([y, next]);
        let looped = ModelBuilder::new().subgraph(main).subgraph(condition).subgraph(body).build().unwrap();
        for (model, want) in [(called, 1.0), (looped, 3.0)] {
            let mut interpreter = Interpreter::builder(model).build().unwrap();
            for _ in 0..2 {
                interpreter.input_mut::<f32>(0).unwrap()[0] = 1.0;
                interpreter.invoke().unwrap();
                assert_eq!(interpreter.output::<f32>(0).unwrap(), [want]);
            }
        }
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
