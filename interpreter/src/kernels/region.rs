//! Subgraphs that combine two elements into one: what scatter, reduce and their windows do with elements that meet.

use delegraph_core::graph::{Subgraph, Tensor};
use delegraph_core::kernel::{InvokeContext, Placement, PrepareContext, RuntimeTensor};
use delegraph_core::ops::{Activation, Params};
use delegraph_core::types::Bool;
use delegraph_core::{BuiltinOp, Element, Error, Result, Shape, TensorType};
use half::{bf16, f16};

/// How two elements become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Combine {
    /// The second one.
    Second,
    Add,
    Multiply,
    Minimum,
    Maximum,
    /// Bit by bit.
    And,
    /// Bit by bit.
    Or,
    /// 1 where neither is 0, else 0.
    All,
    /// 0 where both are 0, else 1.
    Any,
}

impl Combine {
    /// What subgraph `index` does: one op with its two inputs, or nothing but to return the second.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for any other subgraph.
    pub(crate) fn by_subgraph(cx: &mut PrepareContext<'_>, index: i32) -> Result<Self> {
        let subgraph = usize::try_from(index).ok().and_then(|i| cx.host().subgraph(i));
        let subgraph =
            subgraph.ok_or_else(|| Error::InvalidNode(format!("subgraph {index} does not exist")))?;
        combination(subgraph).ok_or_else(|| {
            let ops: Vec<String> = subgraph.nodes.iter().map(|n| n.op.to_string()).collect();
            let ops = if ops.is_empty() { "no op".to_owned() } else { ops.join(", ") };
            Error::Unsupported(format!(
                "subgraph {index}, of {ops}, to combine elements; one ADD, MULTIPLY, MAXIMUM, MINIMUM, AND or OR can"
            ))
        })
    }
}

fn combination(subgraph: &Subgraph) -> Option<Combine> {
    let ([first, second], [output]) = (&*subgraph.inputs, &*subgraph.outputs) else { return None };
    let [node] = &*subgraph.nodes else {
        return (subgraph.nodes.is_empty() && output == second).then_some(Combine::Second);
    };
    let inputs = [node.input(0)?, node.input(1)?];
    let both = inputs == [*first, *second] || inputs == [*second, *first];
    let plain = match &node.params {
        Params::Add(p) => p.fused_activation_function == Activation::None,
        Params::Mul(p) => p.fused_activation_function == Activation::None,
        _ => true,
    };
    if !both || !plain || node.outputs != [*output] {
        return None;
    }
    match node.op.builtin()? {
        BuiltinOp::ADD | BuiltinOp::STABLEHLO_ADD => Some(Combine::Add),
        BuiltinOp::MUL | BuiltinOp::STABLEHLO_MULTIPLY => Some(Combine::Multiply),
        BuiltinOp::MINIMUM | BuiltinOp::STABLEHLO_MINIMUM => Some(Combine::Minimum),
        BuiltinOp::MAXIMUM | BuiltinOp::STABLEHLO_MAXIMUM => Some(Combine::Maximum),
        BuiltinOp::LOGICAL_AND | BuiltinOp::STABLEHLO_AND => Some(Combine::And),
        BuiltinOp::LOGICAL_OR | BuiltinOp::STABLEHLO_OR => Some(Combine::Or),
        _ => None,
    }
}

/// A subgraph that is called with single elements.
pub(crate) struct Region {
    subgraph: usize,
    arguments: Vec<RuntimeTensor>,
}

impl Region {
    /// Subgraph `index`, with one argument of each of these types and `results` results.
    pub(crate) fn new(
        cx: &mut PrepareContext<'_>,
        index: i32,
        types: &[TensorType],
        results: usize,
    ) -> Result<Self> {
        let subgraph = usize::try_from(index)
            .map_err(|_| Error::InvalidNode(format!("subgraph {index} does not exist")))?;
        let returned = cx.host().prepare_callee(subgraph, &vec![Shape::default(); types.len()])?;
        if returned.len() != results {
            let count = returned.len();
            return Err(Error::InvalidNode(format!(
                "subgraph {index} returns {count} tensors, not {results}"
            )));
        }
        let scalar = |&ty: &TensorType| {
            let mut tensor = RuntimeTensor::new(&Tensor::new("", ty, []));
            tensor.allocate(Placement::Dynamic).map(|()| tensor)
        };
        Ok(Region { subgraph, arguments: types.iter().map(scalar).collect::<Result<_>>()? })
    }

    /// Sets argument `i` to an element of its type.
    pub(crate) fn set(&mut self, i: usize, element: &[u8]) -> Result<()> {
        self.arguments[i].bytes_mut()?.copy_from_slice(element);
        Ok(())
    }

    /// Calls the subgraph; its results must be single elements of these types.
    pub(crate) fn call<'c>(
        &self,
        cx: &'c mut InvokeContext<'_>,
        types: &[TensorType],
    ) -> Result<Vec<&'c RuntimeTensor>> {
        let arguments: Vec<&RuntimeTensor> = self.arguments.iter().collect();
        let results = cx.host().call(self.subgraph, &arguments)?;
        match results.iter().zip(types).find(|(r, ty)| r.ty != **ty || r.shape.elements() != 1) {
            None => Ok(results),
            Some((result, ty)) => Err(Error::InvalidNode(format!(
                "subgraph {} returns {} {}, expected one {ty}",
                self.subgraph, result.ty, result.shape
            ))),
        }
    }
}

/// An element type whose elements can be combined.
pub(crate) trait Combined: Element {
    /// The function that combines two elements; `None` where there is none for the type.
    fn combine(how: Combine) -> Option<fn(Self, Self) -> Self>;
}

macro_rules! of_numbers {
    ($how:expr, $zero:expr, $one:expr) => {
        match $how {
            Combine::Second => Some(|_, b| b),
            Combine::Minimum => Some(|a, b| if b < a { b } else { a }),
            Combine::Maximum => Some(|a, b| if a < b { b } else { a }),
            Combine::All => Some(|a, b| if a != $zero && b != $zero { $one } else { $zero }),
            Combine::Any => Some(|a, b| if a != $zero || b != $zero { $one } else { $zero }),
            _ => None,
        }
    };
}

macro_rules! integers {
    ($($ty:ty),*) => { $(impl Combined for $ty {
        fn combine(how: Combine) -> Option<fn(Self, Self) -> Self> {
            match how {
                Combine::Add => Some(<$ty>::wrapping_add),
                Combine::Multiply => Some(<$ty>::wrapping_mul),
                Combine::And => Some(|a, b| a & b),
                Combine::Or => Some(|a, b| a | b),
                how => of_numbers!(how, 0, 1),
            }
        }
    })* };
}
integers!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! floats {
    ($($ty:ty: $zero:expr, $one:expr;)*) => { $(impl Combined for $ty {
        fn combine(how: Combine) -> Option<fn(Self, Self) -> Self> {
            match how {
                Combine::Add => Some(|a, b| a + b),
                Combine::Multiply => Some(|a, b| a * b),
                how => of_numbers!(how, $zero, $one),
            }
        }
    })* };
}
floats! {
    f32: 0.0, 1.0;
    f64: 0.0, 1.0;
    f16: f16::ZERO, f16::ONE;
    bf16: bf16::ZERO, bf16::ONE;
}

impl Combined for Bool {
    fn combine(how: Combine) -> Option<fn(Self, Self) -> Self> {
        Some(match how {
            Combine::Second => |_, b| b,
            Combine::Add | Combine::Maximum | Combine::Or | Combine::Any => {
                |a, b| Bool::from(a.get() || b.get())
            }
            Combine::Multiply | Combine::Minimum | Combine::And | Combine::All => {
                |a, b| Bool::from(a.get() && b.get())
            }
        })
    }
}

/// Calls the generic function `$on::<T>` with the arguments for the type `$ty`, any that is [`Combined`]; `None` for
/// other types.
macro_rules! on_combined {
    ($ty:expr, $on:ident($($argument:expr),*)) => {{
        use delegraph_core::TensorType as T;
        match $ty {
            T::Float32 => Some($on::<f32>($($argument),*)),
            T::Float64 => Some($on::<f64>($($argument),*)),
            T::Float16 => Some($on::<half::f16>($($argument),*)),
            T::BFloat16 => Some($on::<half::bf16>($($argument),*)),
            T::Int8 => Some($on::<i8>($($argument),*)),
            T::UInt8 => Some($on::<u8>($($argument),*)),
            T::Int16 => Some($on::<i16>($($argument),*)),
            T::UInt16 => Some($on::<u16>($($argument),*)),
            T::Int32 => Some($on::<i32>($($argument),*)),
            T::UInt32 => Some($on::<u32>($($argument),*)),
            T::Int64 => Some($on::<i64>($($argument),*)),
            T::UInt64 => Some($on::<u64>($($argument),*)),
            T::Bool => Some($on::<delegraph_core::types::Bool>($($argument),*)),
            _ => None,
        }
    }};
}
pub(crate) use on_combined;

#[cfg(test)]
mod tests {
    use delegraph_core::ops::binary::AddParams;
    use delegraph_core::ops::reduce_window::StablehloReduceWindowParams;
    use delegraph_core::ops::stablehlo_compute::StablehloReduceParams;
    use delegraph_core::ops::stablehlo_gather::StablehloScatterParams;
    use delegraph_core::{Model, ModelBuilder, SubgraphBuilder};

    use super::*;
    use crate::{Interpreter, ReferenceOpResolver};

    /// A subgraph of one op with two scalars, or of none, which returns its second input.
    fn region(op: Option<BuiltinOp>) -> SubgraphBuilder {
        let mut graph = SubgraphBuilder::new("region");
        let (a, b) = (graph.input("a", TensorType::Int32, []), graph.input("b", TensorType::Int32, []));
        let result = match op {
            Some(op) => graph.node(op, Params::None).inputs([b, a]).output("c"),
            None => b,
        };
        graph.outputs([result]);
        graph
    }

    /// Updates of [1, 2, 3, 4] at 3, 1, 7 and 3.
    fn scatter(region: SubgraphBuilder) -> Model {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Int32, [4]);
        let indices = graph.constant("indices", [4], &[3i64, 1, 7, 3]);
        let updates = graph.constant("updates", [4], &[-1i32, -2, -3, 5]);
        let params = StablehloScatterParams {
            inserted_window_dims: vec![0],
            scatter_dims_to_operand_dims: vec![0],
            index_vector_dim: 1,
            update_computation_subgraph_index: 1,
            ..Default::default()
        };
        let y = graph.node(BuiltinOp::STABLEHLO_SCATTER, params).inputs([x, indices, updates]).output("y");
        graph.outputs([y]);
        ModelBuilder::new().subgraph(graph).subgraph(region).build().unwrap()
    }

    /// Sums of windows over an input with ones between its elements and around them.
    fn windows(region: SubgraphBuilder) -> Model {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Int32, [4]);
        let one = graph.constant("one", [], &[1i32]);
        let params = StablehloReduceWindowParams {
            window_dimensions: vec![3],
            window_strides: vec![2],
            base_dilations: vec![2],
            padding: vec![1, 1],
            body_subgraph_index: 1,
            ..Default::default()
        };
        let y = graph.node(BuiltinOp::STABLEHLO_REDUCE_WINDOW, params).inputs([x, one]).output("y");
        graph.outputs([y]);
        ModelBuilder::new().subgraph(graph).subgraph(region).build().unwrap()
    }

    /// Sums of the columns, if the region adds, each with 10.
    fn reduction(region: SubgraphBuilder) -> Model {
        let mut graph = SubgraphBuilder::new("main");
        let x = graph.input("x", TensorType::Int32, [2, 2]);
        let initial = graph.constant("initial", [], &[10i32]);
        let params = StablehloReduceParams { dimensions: vec![0], body_subgraph_index: 1 };
        let y = graph.node(BuiltinOp::STABLEHLO_REDUCE, params).inputs([x, initial]).output("y");
        graph.outputs([y]);
        ModelBuilder::new().subgraph(graph).subgraph(region).build().unwrap()
    }

    fn run(model: Model) -> Result<Vec<i32>> {
        let mut interpreter = Interpreter::builder(model).resolver(ReferenceOpResolver::new()).build()?;
        interpreter.input_mut::<i32>(0)?.copy_from_slice(&[1, 2, 3, 4]);
        interpreter.invoke()?;
        Ok(interpreter.output::<i32>(0)?.to_vec())
    }

    #[test]
    fn elements_that_meet() {
        for (op, want) in [
            (None, [1, -2, 3, 5]),
            (Some(BuiltinOp::STABLEHLO_ADD), [1, 0, 3, 8]),
            (Some(BuiltinOp::STABLEHLO_MULTIPLY), [1, -4, 3, -20]),
            (Some(BuiltinOp::STABLEHLO_MAXIMUM), [1, 2, 3, 5]),
            (Some(BuiltinOp::MINIMUM), [1, -2, 3, -1]),
            (Some(BuiltinOp::STABLEHLO_AND), [1, 2, 3, 4]),
            (Some(BuiltinOp::STABLEHLO_OR), [1, -2, 3, -1]),
        ] {
            assert_eq!(run(scatter(region(op))).unwrap(), want, "{op:?}");
        }
        for (op, want) in [
            (BuiltinOp::STABLEHLO_ADD, [4, 5, 6, 7]),
            (BuiltinOp::MAXIMUM, [1, 2, 3, 4]),
            (BuiltinOp::STABLEHLO_AND, [1, 1, 1, 1]),
        ] {
            assert_eq!(run(windows(region(Some(op)))).unwrap(), want, "{op:?}");
        }
        for (op, want) in [
            (BuiltinOp::STABLEHLO_ADD, [14, 16]),
            (BuiltinOp::STABLEHLO_MINIMUM, [1, 2]),
            (BuiltinOp::STABLEHLO_OR, [11, 14]),
        ] {
            assert_eq!(run(reduction(region(Some(op)))).unwrap(), want, "{op:?}");
        }
    }

    #[test]
    fn other_subgraphs_are_refused() {
        let e = run(scatter(region(Some(BuiltinOp::STABLEHLO_SUBTRACT)))).unwrap_err().to_string();
        assert!(e.contains("subgraph 1, of STABLEHLO_SUBTRACT, to combine elements"), "{e}");
        let mut first = SubgraphBuilder::new("region");
        let (a, _) = (first.input("a", TensorType::Int32, []), first.input("b", TensorType::Int32, []));
        first.outputs([a]);
        let e = run(scatter(first)).unwrap_err().to_string();
        assert!(e.contains("subgraph 1, of no op, to combine elements"), "{e}");
        let mut activated = SubgraphBuilder::new("region");
        let (a, b) =
            (activated.input("a", TensorType::Int32, []), activated.input("b", TensorType::Int32, []));
        let relu = AddParams { fused_activation_function: Activation::Relu, ..Default::default() };
        let c = activated.node(BuiltinOp::ADD, relu).inputs([a, b]).output("c");
        activated.outputs([c]);
        let e = run(scatter(activated)).unwrap_err().to_string();
        assert!(e.contains("subgraph 1, of ADD, to combine elements"), "{e}");
    }
}
