//! When the memory of constants is given back: once all who read them have packed what they need.

use delegraph_core::Result;
use delegraph_core::graph::{Model, Node, Subgraph, TensorId};
use delegraph_core::kernel::RuntimeTensor;

/// So many bytes of the file are read before its pages are let go; each time costs a system call.
const LET_GO: usize = 1 << 20;

/// Constants of at most so many bytes are read from a copy: the file's page, and those that the system reads with it,
/// take more.
const SMALL: usize = 4 << 10;

/// Makes copies of small constants that a node's kernel reads in each invocation.
pub(crate) fn own_small(node: &Node, tensors: &mut [RuntimeTensor]) -> Result<()> {
    node.inputs.iter().flatten().try_for_each(|id| tensors[id.0].own_constant(SMALL))
}

/// Who still reads the constants of a subgraph.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// For each tensor, how many inputs of nodes, and outputs of the subgraph.
    left: Vec<u32>,
    /// For each tensor, whether it is a constant that depends on more than the model: on shapes of inputs, or on a
    /// kernel of the application's.
    loose: Vec<bool>,
    /// Bytes of the file that were read since its pages were let go.
    read: usize,
}

impl Readers {
    pub(crate) fn new(subgraph: &Subgraph) -> Self {
        let mut left = vec![0u32; subgraph.tensors.len()];
        let inputs = subgraph.nodes.iter().flat_map(|node| node.inputs.iter().flatten());
        for id in inputs.chain(&subgraph.outputs) {
            left[id.0] = left[id.0].saturating_add(1);
        }
        Readers { left, loose: vec![false; subgraph.tensors.len()], read: 0 }
    }

    /// A node was computed while preparing; `loose` says whether from more than its inputs' values.
    pub(crate) fn computed(&mut self, node: &Node, loose: bool) {
        let loose = loose || !self.depends_on_model_alone(node);
        node.outputs.iter().for_each(|id| self.loose[id.0] = loose);
    }

    /// Whether the constants among a node's inputs are the same in every interpreter on the model.
    pub(crate) fn depends_on_model_alone(&self, node: &Node) -> bool {
        node.inputs.iter().flatten().all(|id| !self.loose[id.0])
    }

    /// A node does not read the constants among its `inputs` any more. Those computed while preparing are released
    /// after their last reader.
    pub(crate) fn done(
        &mut self,
        model: &Model,
        subgraph: &Subgraph,
        inputs: &[Option<TensorId>],
        tensors: &mut [RuntimeTensor],
    ) {
        for id in inputs.iter().flatten() {
            let tensor = &mut tensors[id.0];
            if subgraph.tensor(*id).is_constant() {
                self.read = self.read.saturating_add(tensor.bytes().len());
            } else if tensor.is_constant() {
                self.left[id.0] = self.left[id.0].saturating_sub(1);
                if self.left[id.0] == 0 {
                    tensor.release();
                }
            }
        }
        if self.read >= LET_GO {
            self.read = 0;
            model.let_go();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use delegraph_core::graph::Backing;
    use delegraph_core::kernel::Placement;
    use delegraph_core::ops::TensorType;
    use delegraph_core::ops::cast::CastParams;
    use delegraph_core::ops::fully_connected::FullyConnectedParams;
    use delegraph_core::ops::reshape::ReshapeParams;
    use delegraph_core::ops::shape::ShapeParams;
    use delegraph_core::{BuiltinOp, ModelBuilder, ModelBytes, Params, SubgraphBuilder};
    use half::f16;

    use super::*;
    use crate::{Interpreter, InterpreterBuilder};

    /// Weights of half precision that two products read; with `added`, an ADD, too.
    fn model(added: bool) -> Model {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [if added { 4 } else { 3 }, 4]);
        let halves: Vec<f16> = (0..16u8).map(|i| f16::from_f32(f32::from(i) / 4.0 - 2.0)).collect();
        let halves = graph.constant("halves", [4, 4], &halves);
        let weights = graph.node(BuiltinOp::DEQUANTIZE, Params::None).inputs([halves]).output("weights");
        let params = FullyConnectedParams::default();
        let mut y = graph.node(BuiltinOp::FULLY_CONNECTED, params.clone()).inputs([x, weights]).output("y");
        if added {
            let params = delegraph_core::ops::binary::AddParams::default();
            let z = graph.node(BuiltinOp::ADD, params).inputs([y, weights]).output("z");
            y = z;
        }
        let out = graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([y, weights]).output("out");
        graph.outputs([out]);
        ModelBuilder::new().subgraph(graph).build().unwrap()
    }

    fn placement(interpreter: &Interpreter, name: &str) -> Placement {
        let tensors = &interpreter.model().subgraphs[0].tensors;
        let id = tensors.iter().position(|t| &*t.name == name).unwrap();
        interpreter.tensor(TensorId(id)).unwrap().placement()
    }

    fn run(interpreter: &mut Interpreter) -> Vec<f32> {
        let input = interpreter.input_mut::<f32>(0).unwrap();
        input.iter_mut().enumerate().for_each(|(i, x)| *x = i as f32 - 5.0);
        interpreter.invoke().unwrap();
        interpreter.output::<f32>(0).unwrap().to_vec()
    }

    fn build(model: Model, options: fn(InterpreterBuilder) -> InterpreterBuilder) -> Interpreter {
        options(Interpreter::builder(model)).build().unwrap()
    }

    #[test]
    fn packed_weights_are_not_held_twice() {
        let mut released = build(model(false), |b| b);
        assert_eq!(placement(&released, "weights"), Placement::Released);
        let mut preserved = build(model(false), InterpreterBuilder::preserve_all_tensors);
        assert_eq!(placement(&preserved, "weights"), Placement::Constant);
        assert_eq!(released.memory().weights_bytes + 4 * 16, preserved.memory().weights_bytes);
        let mut reference = build(model(false), |b| b.resolver(crate::ReferenceOpResolver::new()));
        assert_eq!(placement(&reference, "weights"), Placement::Constant);
        let expected = run(&mut reference);
        assert_eq!(run(&mut released), expected);
        assert_eq!(run(&mut preserved), expected);
        // Another shape needs the weights again.
        released.resize_input(0, &[1, 4]).unwrap();
        assert_eq!(run(&mut released), expected[..4]);
        assert_eq!(placement(&released, "weights"), Placement::Released);
    }

    #[test]
    fn small_constants_are_read_from_copies() {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [2000]);
        let small = graph.constant("small", [1], &[2.0f32]);
        let large = graph.constant("large", [2000], &[1.0f32; 2000]);
        let params = delegraph_core::ops::binary::AddParams::default();
        let y = graph.node(BuiltinOp::ADD, params.clone()).inputs([x, small]).output("y");
        let z = graph.node(BuiltinOp::ADD, params).inputs([y, large]).output("z");
        graph.outputs([z]);
        let mut interpreter = build(ModelBuilder::new().subgraph(graph).build().unwrap(), |b| b);
        let model = interpreter.model().clone();
        let tensors = &model.subgraphs[0].tensors;
        let in_file = |name: &str| {
            let id = TensorId(tensors.iter().position(|t| &*t.name == name).unwrap());
            let file = model.constant(&tensors[id.0]).unwrap().as_ptr();
            std::ptr::eq(interpreter.tensor(id).unwrap().bytes().as_ptr(), file)
        };
        assert_eq!(["small", "large"].map(in_file), [false, true]);
        assert_eq!(run(&mut interpreter)[..2], [-2.0, -1.0]);
    }

    #[test]
    fn what_a_kernel_still_reads_stays() {
        let [mut optimized, mut reference] = [
            build(model(true), |b| b),
            build(model(true), |b| b.resolver(crate::ReferenceOpResolver::new())),
        ];
        assert_eq!(run(&mut optimized), run(&mut reference));
        assert_eq!(placement(&optimized, "weights"), Placement::Constant);
    }

    #[test]
    fn interpreters_on_one_model_pack_once() {
        let model = Arc::new(model(false));
        let new = || Interpreter::builder(model.clone()).build().unwrap();
        let mut a = new();
        assert_eq!(model.shared().count(), (2, 2));
        let mut b = new();
        assert_eq!(model.shared().count(), (2, 4));
        let expected = run(&mut a);
        assert_eq!(run(&mut b), expected);
        // Another number of rows meets the same weights.
        a.resize_input(0, &[1, 4]).unwrap();
        assert_eq!(run(&mut a), expected[..4]);
        assert_eq!(model.shared().count(), (2, 4));
        drop(a);
        assert_eq!(run(&mut b), expected);
        assert_eq!(Model::clone(&model).shared().count(), (0, 0));
        drop(b);
        assert_eq!(model.shared().count(), (0, 0));
    }

    #[test]
    fn weights_that_depend_on_shapes_are_not_shared() {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Float32, [1, 2]);
        let shape = graph.node(BuiltinOp::SHAPE, ShapeParams { out_type: TensorType::Int32 });
        let shape = shape.inputs([x]).output("shape");
        let weights = graph.tensor("weights", TensorType::Float32, [2]);
        graph.node(BuiltinOp::CAST, CastParams::default()).inputs([shape]).writes([weights]);
        let params = ReshapeParams { new_shape: vec![1, 2] };
        let weights = graph.node(BuiltinOp::RESHAPE, params).inputs([weights]).output("row");
        let params = FullyConnectedParams::default();
        let y = graph.node(BuiltinOp::FULLY_CONNECTED, params).inputs([x, weights]).output("y");
        graph.outputs([y]);
        let model = Arc::new(ModelBuilder::new().subgraph(graph).build().unwrap());
        let new = |rows: usize| {
            let mut interpreter = Interpreter::builder(model.clone()).build().unwrap();
            interpreter.resize_input(0, &[rows, 2]).unwrap();
            interpreter.input_mut::<f32>(0).unwrap().fill(1.0);
            interpreter.invoke().unwrap();
            interpreter
        };
        let (a, b) = (new(1), new(3));
        assert_eq!((a.output::<f32>(0).unwrap(), b.output::<f32>(0).unwrap()), (&[3.0][..], &[5.0; 3][..]));
        assert_eq!(model.shared().count(), (0, 0));
    }

    #[test]
    fn the_file_may_leave_memory_after_packing() {
        struct File(Vec<u8>, Arc<AtomicUsize>);
        impl AsRef<[u8]> for File {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        impl Backing for File {
            fn let_go(&self) {
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
        let times = Arc::new(AtomicUsize::new(0));
        let file = File(model(false).to_bytes().unwrap(), times.clone());
        let model = Model::from_bytes(ModelBytes::backed(file)).unwrap();
        let mut interpreter = build(model, |b| b);
        assert_eq!(times.load(Ordering::Relaxed), 1);
        run(&mut interpreter);
        assert_eq!(times.load(Ordering::Relaxed), 1);
    }
}
