//! Marked composites: their runners, which all compute the same.

use delegraph_core::flex::Map;
use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::ops::binary::AddParams;
use delegraph_core::{
    Attributes, Model, ModelBytes, MutableOpResolver, Registration, Result, SubgraphBuilder, TensorType,
};
use delegraph_delegate_api::{
    CompositeReport, CompositeRunner, DelegateKernel, DelegateParams, GraphView, NodeView, Policy, Rejection,
    Simple, SimpleDelegate, VersionTable,
};
use delegraph_interpreter::{BuiltinOpResolver, Interpreter};

use crate::support::{ABS, ADD, NEG, Scripted, X, build, partitions, run, step, with};

const NAME: &str = "test.negate_and_add";

/// `abs(x)`, then `-abs(x) + offset` as a composite, then `abs` again.
fn model() -> Model {
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [4]);
    let offset = body.constant("offset", [1], &[2.5f32]);
    let negative = step(&mut body, NEG, x, "negative");
    let y = body.node(ADD, AddParams::default()).inputs([negative, offset]).output("y");
    body.outputs([y]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let x = step(&mut graph, ABS, x, "a");
    let attributes = Attributes::new().with("offset", 2.5f32);
    let x = graph.composite(NAME, body).attributes(&attributes).version(2).inputs([x]).output("b");
    let y = step(&mut graph, ABS, x, "c");
    graph.outputs([y]);
    build(graph)
}

fn expected() -> Vec<f32> {
    X.iter().map(|x| (2.5 - x.abs()).abs()).collect()
}

/// The fused kernel: it reads its offset from the attributes.
struct NegateAndAdd {
    offset: f32,
}

impl NegateAndAdd {
    fn new(attributes: &[u8]) -> Result<Self> {
        Ok(NegateAndAdd { offset: Map::parse(attributes)?.get("offset")? })
    }

    fn resolver(versions: std::ops::RangeInclusive<u32>) -> MutableOpResolver {
        let mut resolver = MutableOpResolver::extending(BuiltinOpResolver::new());
        let kernel = Registration::new(|cx| NegateAndAdd::new(cx.custom_options));
        resolver.add_composite(NAME, kernel, versions);
        resolver
    }
}

impl Kernel for NegateAndAdd {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        let shape = cx.input(0)?.shape().clone();
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let input = cx.input::<f32>(0)?.to_vec();
        let output = cx.output::<f32>(0)?;
        output.iter_mut().zip(input).for_each(|(y, x)| *y = self.offset - x);
        Ok(())
    }
}

impl DelegateKernel for NegateAndAdd {}

/// A delegate that claims only the composite.
struct Claims(VersionTable);

impl SimpleDelegate for Claims {
    fn name(&self) -> &str {
        "claims"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.0
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        let composite = node.composite().ok_or_else(|| Rejection::Other("no composite".into()))?;
        let attributes = composite.attributes().map_err(|e| Rejection::Other(e.to_string()))?;
        // The delegate sees the name, the attributes, and the nodes of the body.
        let body = composite.body.and_then(|i| node.graph().model().subgraphs().get(i));
        assert_eq!((composite.name, composite.version, body.unwrap().nodes().len()), (NAME, 2, 2));
        match attributes.get::<f32>("offset") {
            Ok(2.5) => Ok(()),
            other => Err(Rejection::UnsupportedParam(format!("offset {other:?}"))),
        }
    }

    fn create_kernel(
        &mut self,
        params: &DelegateParams,
        graph: &GraphView<'_>,
    ) -> Result<Box<dyn DelegateKernel>> {
        let composite = graph.node(params.nodes[0]).composite().unwrap();
        Ok(Box::new(NegateAndAdd::new(composite.bytes)?))
    }
}

fn composites(interpreter: &Interpreter) -> Vec<(CompositeRunner, Vec<usize>)> {
    let line = |c: &CompositeReport| {
        assert_eq!((c.name.as_str(), c.version), (NAME, 2));
        (c.runner, c.nodes.iter().map(|id| id.0).collect())
    };
    interpreter.report().composites.iter().map(line).collect()
}

/// Each delegate that did not claim the only composite, with the kind of its reason.
fn why_left(interpreter: &Interpreter) -> Vec<(usize, &'static str)> {
    let [composite] = &interpreter.report().composites[..] else { panic!("{:?}", interpreter.report()) };
    composite.rejections.iter().map(|(delegate, reason)| (*delegate, reason.kind())).collect()
}

fn check(mut interpreter: Interpreter, runner: CompositeRunner, nodes: &[usize]) -> Interpreter {
    assert_eq!(run(&mut interpreter, &X).unwrap(), expected());
    assert_eq!(composites(&interpreter), [(runner, nodes.to_vec())]);
    assert_eq!(run(&mut interpreter, &X).unwrap(), expected());
    interpreter
}

#[test]
fn a_body_takes_the_place_of_a_composite_that_nothing_runs_whole() {
    let interpreter =
        check(Interpreter::builder(model()).build().unwrap(), CompositeRunner::Inlined, &[1, 2]);
    assert_eq!(interpreter.report().nodes.len(), 4);
    // Partitions extend across the inlined body.
    let all = with(&model(), [Scripted::new("d", &[ABS, NEG, ADD])]).policy(Policy::Require).build().unwrap();
    assert_eq!(partitions(&all), [[0, 1, 2, 3]]);
    check(all, CompositeRunner::Inlined, &[1, 2]);
    let some = with(&model(), [Scripted::new("d", &[ABS, NEG])]).build().unwrap();
    assert_eq!(partitions(&some), [vec![0, 1], vec![3]]);
    check(some, CompositeRunner::Inlined, &[1, 2]);
}

#[test]
fn a_kernel_of_its_name_runs_it_where_no_delegate_does() {
    let builder = || Interpreter::builder(model()).resolver(NegateAndAdd::resolver(1..=2));
    let interpreter = check(builder().build().unwrap(), CompositeRunner::Kernel, &[1]);
    assert_eq!(interpreter.report().nodes.len(), 3);
    let delegate = Box::new(Scripted::new("d", &[ABS, NEG, ADD]));
    let interpreter = check(builder().delegate(delegate).build().unwrap(), CompositeRunner::Kernel, &[1]);
    assert_eq!(why_left(&interpreter), [(0, "UnsupportedComposite")]);
    // A kernel for other versions is not used.
    let older = Interpreter::builder(model()).resolver(NegateAndAdd::resolver(1..=1));
    check(older.build().unwrap(), CompositeRunner::Inlined, &[1, 2]);
}

#[test]
fn a_delegate_may_claim_it_first() {
    let table = || VersionTable::default().with_composite(NAME, 2);
    let builder = Interpreter::builder(model()).resolver(NegateAndAdd::resolver(1..=2));
    let interpreter = builder.delegate(Simple(Claims(table()))).build().unwrap();
    assert_eq!(partitions(&interpreter), [[1]]);
    let mut interpreter = check(interpreter, CompositeRunner::Delegate(0), &[1]);
    // Without the delegate, the kernel runs it; without the kernel, the body.
    interpreter.remove_delegates();
    check(interpreter, CompositeRunner::Kernel, &[1]);
    let mut interpreter = Interpreter::builder(model()).delegate(Simple(Claims(table()))).build().unwrap();
    interpreter.remove_delegates();
    assert_eq!(run(&mut interpreter, &X).unwrap(), expected());
    let mut interpreter = check(interpreter, CompositeRunner::Inlined, &[1, 2]);
    // The composite is offered again to a delegate that is added later.
    interpreter.add_delegate(Simple(Claims(table())), Default::default());
    assert_eq!(run(&mut interpreter, &X).unwrap(), expected());
    check(interpreter, CompositeRunner::Delegate(0), &[1]);
}

#[test]
fn what_a_delegate_declares_and_leaves_is_offered_node_by_node() {
    // The highest version of the first delegate is too low; the second one gets the nodes of the body.
    let table = VersionTable::default().with_composite(NAME, 1);
    let builder = Interpreter::builder(model()).delegate(Simple(Claims(table)));
    let builder = builder.delegate(Scripted::new("d", &[ABS, NEG, ADD]));
    let interpreter = builder.build().unwrap();
    assert_eq!(partitions(&interpreter), [[0, 1, 2, 3]]);
    assert_eq!(why_left(&interpreter), [(0, "CompositeVersionTooHigh"), (1, "UnsupportedComposite")]);
    check(interpreter, CompositeRunner::Inlined, &[1, 2]);
    // A delegate that rejects the attributes.
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [4]);
    let negative = step(&mut body, NEG, x, "n");
    let y = step(&mut body, NEG, negative, "y");
    body.outputs([y]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let attributes = Attributes::new().with("offset", 1.0);
    let y = graph.composite(NAME, body).attributes(&attributes).version(2).inputs([x]).output("y");
    graph.outputs([y]);
    let table = VersionTable::default().with_composite(NAME, 2);
    let delegates = Interpreter::builder(build(graph)).delegate(Simple(Claims(table)));
    let delegates = delegates.delegate(Scripted::new("d", &[NEG])).policy(Policy::Require);
    let mut interpreter = delegates.build().unwrap();
    assert_eq!(partitions(&interpreter), [[0, 1]]);
    // The reason is kept after inlining the body, and after a resize.
    for _ in 0..2 {
        assert_eq!(why_left(&interpreter), [(0, "UnsupportedParam"), (1, "UnsupportedComposite")]);
        assert_eq!(run(&mut interpreter, &X).unwrap(), X);
        interpreter.resize_input(0, &[4]).unwrap();
        interpreter.prepare().unwrap();
    }
}

/// A delegate that declares composites, and refuses all of them and all nodes.
struct Refuses(VersionTable);

impl SimpleDelegate for Refuses {
    fn name(&self) -> &str {
        "refuses"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.0
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        let name = node.composite().map_or_else(|| "no composite".to_owned(), |c| c.name.to_owned());
        Err(Rejection::Other(name))
    }

    fn create_kernel(&mut self, _: &DelegateParams, _: &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> {
        unreachable!("nothing is claimed")
    }
}

/// Composites in bodies of composites keep their reasons and the numbers of their nodes.
#[test]
fn nested_composites_keep_their_reasons() {
    // The main graph is a, c. The bodies are: c = b, NEG; b = a, ABS; a = NEG.
    let inner = || {
        let mut body = SubgraphBuilder::new("a");
        let x = body.input("x", TensorType::Float32, [4]);
        let y = step(&mut body, NEG, x, "y");
        body.outputs([y]);
        body
    };
    let around = |name: &str, called: &str, body: SubgraphBuilder, op| {
        let mut outer = SubgraphBuilder::new(name);
        let x = outer.input("x", TensorType::Float32, [4]);
        let y = outer.composite(called, body).inputs([x]).output("y");
        let y = step(&mut outer, op, y, "z");
        outer.outputs([y]);
        outer
    };
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let x = graph.composite("a", inner()).inputs([x]).output("first");
    let body = around("c", "b", around("b", "a", inner(), ABS), NEG);
    let x = graph.composite("c", body).inputs([x]).output("y");
    graph.outputs([x]);
    let model = build(graph);
    let numbers = |c: &CompositeReport| c.nodes.iter().map(|id| id.0).collect::<Vec<_>>();
    let expected = [("a", vec![0]), ("a", vec![1]), ("b", vec![1, 2]), ("c", vec![1, 2, 3])];
    // The same for each subset of declared composites; those that are not declared are inlined earlier.
    for declared in 0..8 {
        let names = ["a", "b", "c"].into_iter().enumerate().filter(|(i, _)| declared >> i & 1 == 1);
        let names: Vec<&str> = names.map(|(_, name)| name).collect();
        let table =
            || names.iter().fold(VersionTable::default(), |table, name| table.with_composite(name, 1));
        let mut interpreter =
            Interpreter::builder(model.clone()).delegate(Simple(Refuses(table()))).build().unwrap();
        assert_eq!(run(&mut interpreter, &X).unwrap(), X.map(|x| -x.abs()));
        let mut found: Vec<_> = interpreter.report().composites.iter().collect();
        found.sort_by_key(|c| (c.name.clone(), c.nodes.clone()));
        let composites: Vec<_> = found.iter().map(|c| (c.name.as_str(), numbers(c))).collect();
        assert_eq!(composites, expected, "{names:?}");
        let error =
            Interpreter::builder(model.clone()).delegate(Simple(Refuses(table()))).policy(Policy::Require);
        let error = error.build().err().unwrap().to_string();
        assert_eq!(error.contains("; composite \"b\": b"), names.contains(&"b"), "{error}");
        for composite in found {
            let kind = composite.rejections.first().map(|(_, reason)| reason.kind());
            let wanted =
                if names.contains(&composite.name.as_str()) { "Other" } else { "UnsupportedComposite" };
            assert_eq!(kind, Some(wanted), "{names:?} {composite:?}");
        }
    }
}

/// A delegate that declares composites, and rejects them and all nodes as unsupported.
struct Unsupported(VersionTable);

impl SimpleDelegate for Unsupported {
    fn name(&self) -> &str {
        "unsupported"
    }

    fn max_versions(&self) -> &VersionTable {
        &self.0
    }

    fn supports(&self, node: &NodeView<'_>) -> Result<(), Rejection> {
        Err(match node.composite() {
            Some(composite) => Rejection::UnsupportedComposite { name: composite.name.to_owned() },
            None => Rejection::UnsupportedOp { op: node.op().clone() },
        })
    }

    fn create_kernel(&mut self, _: &DelegateParams, _: &GraphView<'_>) -> Result<Box<dyn DelegateKernel>> {
        unreachable!("nothing is claimed")
    }
}

/// The error of the policy `Require` contains the reason for the composite, and the composite's name once.
#[test]
fn the_reason_for_a_composite_is_in_the_error() {
    let error = |table: VersionTable, other: bool| {
        let builder = Interpreter::builder(model()).delegate(Simple(Unsupported(table)));
        let builder = if other { builder.delegate(Scripted::new("d", &[ABS])) } else { builder };
        builder.policy(Policy::Require).build().err().unwrap().to_string()
    };
    let declared = |version| VersionTable::default().with_composite(NAME, version);
    let rejected = format!("node 1 (NEG v1): NEG is not supported; composite \"{NAME}\" is not supported\n");
    let (whole, separate) = (error(declared(2), false), error(VersionTable::default(), false));
    assert!(format!("{whole}\n").contains(&rejected), "{whole}");
    assert!(!separate.contains("composite"), "{separate}");
    let high = format!("; composite \"{NAME}\" version 2 is above the highest supported, 1");
    let text = error(declared(1), false);
    assert!(text.contains(&format!("NEG is not supported{high}")), "{text}");
    // Of several delegates, each reason has the delegate's name; the other delegate does not declare the composite.
    let text = error(declared(2), true);
    let of_two = format!("d: NEG is not supported; unsupported: composite \"{NAME}\" is not supported");
    assert!(text.contains(&of_two) && !text.contains(" d: composite \""), "{text}");
    let interpreter =
        Interpreter::builder(model()).delegate(Simple(Unsupported(declared(2)))).build().unwrap();
    assert_eq!(interpreter.report().composites[0].declared_by, [0]);
    assert_eq!(interpreter.report().composites[0].refusals().count(), 1);
}

/// A body that returns its input unchanged is not inlined, but called.
#[test]
fn a_body_that_cannot_take_its_place_is_called() {
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [4]);
    let y = step(&mut body, NEG, x, "y");
    body.outputs([y, x]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [4]);
    let [a, b] = graph.composite(NAME, body).version(2).inputs([x]).outputs(["a", "b"]);
    graph.outputs([a, b]);
    let mut interpreter = Interpreter::builder(build(graph)).build().unwrap();
    assert_eq!(composites(&interpreter), [(CompositeRunner::Called, vec![0])]);
    assert_eq!(run(&mut interpreter, &X).unwrap(), X.map(|x| -x));
    assert_eq!(interpreter.output::<f32>(1).unwrap(), X);
}

#[test]
fn resizing_and_versions_of_the_interface() {
    let mut interpreter = Interpreter::builder(model()).build().unwrap();
    interpreter.resize_input(0, &[2]).unwrap();
    assert_eq!(run(&mut interpreter, &X[..2]).unwrap(), expected()[..2]);
    let mut body = SubgraphBuilder::new("body");
    let x = body.input("x", TensorType::Float32, [4]);
    body.outputs([x]);
    let mut graph = SubgraphBuilder::new("main");
    let x = graph.input("x", TensorType::Float32, [5]);
    let y = graph.composite("c", body).inputs([x]).output("y");
    graph.outputs([y]);
    let error = delegraph_core::ModelBuilder::new().subgraph(graph).build().unwrap_err().to_string();
    assert!(error.contains("input 0 (\"x\") is FLOAT32 [4] in the body"), "{error}");
}

/// The example of TensorFlow's guide: the converter wrote two convolutions, and a function that is marked as one fused
/// op, with two outputs and an attribute. There is no body, so a kernel of the name is required.
#[test]
fn a_fusable_function_of_tensorflow_runs_on_the_kernel_of_its_name() {
    struct Fused {
        option: i64,
    }
    impl Kernel for Fused {
        fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
            for i in 0..2 {
                let shape = cx.input(i)?.shape().clone();
                cx.set_output_shape(i, shape)?;
            }
            Ok(())
        }
        fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
            let (a, b) = (cx.input::<f32>(0)?.to_vec(), cx.input::<f32>(1)?.to_vec());
            let sum = a.iter().zip(&b).map(|(a, b)| a + b);
            cx.output::<f32>(0)?.iter_mut().zip(sum).for_each(|(y, v)| *y = v);
            let product = a.iter().zip(&b).map(|(a, b)| a * b * self.option as f32);
            cx.output::<f32>(1)?.iter_mut().zip(product).for_each(|(y, v)| *y = v);
            Ok(())
        }
    }
    let file = include_bytes!("../../../assets/fusion/fusable.tflite");
    let model = || Model::from_bytes(ModelBytes::new(&file[..])).unwrap();
    let error = Interpreter::builder(model()).build().err().unwrap().to_string();
    assert!(error.contains("my_custom_fused_op"), "{error}");
    let mut resolver = MutableOpResolver::extending(BuiltinOpResolver::new());
    let kernel =
        Registration::new(|cx| Ok(Fused { option: Map::parse(cx.custom_options)?.get("example_option")? }));
    resolver.add_composite("my_custom_fused_op", kernel, ());
    let mut interpreter = Interpreter::builder(model()).resolver(resolver).build().unwrap();
    let data = |bytes: &[u8]| {
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect::<Vec<_>>()
    };
    let a = data(include_bytes!("../../../assets/fusion/convolved_a.f32"));
    let b = data(include_bytes!("../../../assets/fusion/convolved_b.f32"));
    let inputs: [&[u8]; 2] = [
        include_bytes!("../../../assets/fusion/input_a.f32"),
        include_bytes!("../../../assets/fusion/input_b.f32"),
    ];
    for (i, name) in ["input_a", "input_b"].into_iter().enumerate() {
        let index = interpreter.input_index(name).unwrap();
        interpreter.set_input_bytes(index, inputs[i]).unwrap();
    }
    interpreter.invoke().unwrap();
    for (i, (a, b)) in a.iter().zip(&b).enumerate() {
        let output = |name: &str| interpreter.output_index(name).unwrap();
        let got = ["output_0", "output_1"].map(|name| interpreter.output::<f32>(output(name)).unwrap()[i]);
        let (sum, product) = (a + b, 10.0 * a * b);
        let close = approx::abs_diff_eq!(got[0], sum, epsilon = 1e-5)
            && approx::abs_diff_eq!(got[1], product, epsilon = 1e-4);
        assert!(close, "{i}: {got:?} {a} {b}");
    }
}
