//! RESHAPE, SQUEEZE, EXPAND_DIMS: the same bytes under another shape.

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{BuiltinOp, MutableOpResolver, Registration, Result, TensorType};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::RESHAPE, Registration::new(|_| Ok(View)), 1)
        .add_builtin(BuiltinOp::SQUEEZE, Registration::new(|_| Ok(View)), 1..=2)
        .add_builtin(BuiltinOp::EXPAND_DIMS, Registration::new(|_| Ok(View)), 1);
}

/// The same bytes under another shape.
pub(super) struct View;

impl Kernel for View {
    fn prepare(&mut self, _: &mut PrepareContext<'_>) -> Result<()> {
        Ok(())
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        // Only where the planner could not let the two share memory.
        let input = cx.input_bytes(0)?;
        if cx.input_tensor(0)?.ty == TensorType::String {
            cx.resize_output_bytes(0, cx.output_shape(0)?.clone(), input.len())?;
        }
        cx.output_bytes(0)?.copy_from_slice(input);
        Ok(())
    }

    fn is_view(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;
    use delegraph_core::ops::reshape::{ReshapeParams, SqueezeParams};

    use super::*;
    use crate::kernels::testing::{T, check, error};

    #[test]
    fn reshape() {
        let input = || Some(T::new(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let params = |dims: &[i32]| Params::Reshape(ReshapeParams { new_shape: dims.to_vec() });
        let output = |shape: &[usize]| T::new(shape, &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        check(BuiltinOp::RESHAPE, 1, params(&[3, -1]), &[input()], &[output(&[3, 2])]);
        let operand = Some(T::new(&[1], &[-1i32]));
        check(BuiltinOp::RESHAPE, 1, params(&[]), &[input(), operand.clone()], &[output(&[6])]);
        let text = error(BuiltinOp::RESHAPE, 1, params(&[4, -1]), &[input()], &[output(&[6])]);
        assert!(
            text.contains(
                "node 0 (RESHAPE v1, writes \"t1\"): invalid node: cannot reshape [2, 3] to [4, -1]"
            ),
            "{text}"
        );
    }

    #[test]
    fn nodes_that_change_nothing_take_no_memory() {
        use delegraph_core::ops::concatenation::ConcatenationParams;
        use delegraph_core::ops::split::SplitParams;
        use delegraph_core::{ModelBuilder, SubgraphBuilder};

        use crate::{Interpreter, ReferenceOpResolver};

        let build = |rows: i32, reference: bool| {
            let mut graph = SubgraphBuilder::new("main");
            let x = graph.input("x", TensorType::Int32, [1, 4, 1, 3]);
            let order = graph.constant("order", [4], &[1i32, 0, 3, 2]);
            let y = graph.node(BuiltinOp::TRANSPOSE, Params::None).inputs([x, order]).output("t0");
            let (begin, size) =
                (graph.constant("b", [4], &[0i32; 4]), graph.constant("s", [4], &[rows, -1, -1, -1]));
            let y = graph.node(BuiltinOp::SLICE, Params::None).inputs([y, begin, size]).output("t1");
            let params = ConcatenationParams { axis: 0, ..Default::default() };
            let y = graph.node(BuiltinOp::CONCATENATION, params).inputs([y]).output("t2");
            let once = graph.constant("once", [4], &[1i32; 4]);
            let y = graph.node(BuiltinOp::TILE, Params::None).inputs([y, once]).output("t3");
            let axis = graph.constant("axis", [], &[0i32]);
            let y =
                graph.node(BuiltinOp::SPLIT, SplitParams { num_splits: 1 }).inputs([axis, y]).output("t4");
            graph.outputs([y]);
            let model = ModelBuilder::new().subgraph(graph).build().unwrap();
            let builder = Interpreter::builder(model);
            if reference { builder.resolver(ReferenceOpResolver::new()) } else { builder }.build().unwrap()
        };
        for reference in [false, true] {
            for (rows, sizes) in [(-1, [12, 0]), (3, [12, 9])] {
                let mut interpreter = build(rows, reference);
                let bytes = |n: usize| (4 * n).next_multiple_of(64);
                assert_eq!(interpreter.memory().naive_bytes, bytes(sizes[0]) + bytes(sizes[1]), "{rows}");
                for round in 0..2 {
                    let input: Vec<i32> = (round..round + 12).collect();
                    interpreter.input_mut::<i32>(0).unwrap().copy_from_slice(&input);
                    interpreter.invoke().unwrap();
                    let count = if rows < 0 { 12 } else { 9 };
                    assert_eq!(interpreter.output::<i32>(0).unwrap(), &input[..count]);
                }
            }
        }
    }

    #[test]
    fn strings() {
        let operand = Some(T::new(&[1], &[-1i32]));
        let input = Some(T::strings(&[1, 2], &["a", "bc"]));
        let params = Params::Reshape(ReshapeParams { new_shape: Vec::new() });
        check(BuiltinOp::RESHAPE, 1, params, &[input, operand], &[T::strings(&[2], &["a", "bc"])]);
    }

    #[test]
    fn squeeze_and_expand() {
        let input = || Some(T::new(&[1, 2, 1], &[1i8, 2]));
        let squeeze = |dims: &[i32]| Params::Squeeze(SqueezeParams { squeeze_dims: dims.to_vec() });
        check(BuiltinOp::SQUEEZE, 1, squeeze(&[]), &[input()], &[T::new(&[2], &[1i8, 2])]);
        check(BuiltinOp::SQUEEZE, 1, squeeze(&[-1]), &[input()], &[T::new(&[1, 2], &[1i8, 2])]);
        let text = error(BuiltinOp::SQUEEZE, 1, squeeze(&[1]), &[input()], &[T::new(&[2], &[1i8, 2])]);
        assert!(text.contains("cannot squeeze dimension 1"), "{text}");
        let axis = Some(T::new(&[1], &[-1i32]));
        check(BuiltinOp::EXPAND_DIMS, 1, Params::None, &[input(), axis], &[T::new(&[1, 2, 1, 1], &[1i8, 2])]);
    }
}
