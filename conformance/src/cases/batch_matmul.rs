//! BATCH_MATMUL.

use delegraph_core::ops::batch_matmul::BatchMatMulParams;

use super::prelude::*;

fn params(adj_x: bool, adj_y: bool) -> BatchMatMulParams {
    BatchMatMulParams::default().adj_x(adj_x).adj_y(adj_y).asymmetric_quantize_inputs(false)
}

pub(super) const OP_KINDS: OpKinds = &[];

pub(super) fn cases(out: &mut Vec<Case>) {
    let shapes: &[(&[usize], &[usize])] = &[
        (&[3, 4], &[4, 5]),
        (&[2, 3, 7], &[2, 7, 2]),
        (&[2, 1, 3, 4], &[1, 3, 4, 2]),
        (&[5, 4], &[2, 4, 3]),
    ];
    for &(a, b) in shapes {
        for (adj_x, adj_y) in [(false, false), (true, false), (false, true), (true, true)] {
            let (a, b) = (swapped(a, adj_x), swapped(b, adj_y));
            let detail = format!("rank{}x{}_{}{}", a.len(), b.len(), u8::from(adj_x), u8::from(adj_y));
            for ty in [Float32, Int8, Int16, Int32] {
                let (x0, x1) = (x(ty, &a), x(ty, &b));
                let p = params(adj_x, adj_y);
                let case = match ty {
                    Int8 => Case::new(Op::BATCH_MATMUL, p, [x0.q(0.05, 7), x1.q(0.02, -5)]).q(0.5, -11),
                    Int16 => Case::new(Op::BATCH_MATMUL, p, [x0.q(0.001, 0), x1.q(0.002, 0)]).q(0.5, 0),
                    // Plain integers are supported for 8 bits only.
                    Int32 => Case::new(Op::BATCH_MATMUL, p, [x(Int8, &a).q(1.0, 0), x(Int8, &b).q(1.0, 0)])
                        .outputs([Output::of(Int32).q(1.0, 0)]),
                    _ => Case::new(Op::BATCH_MATMUL, p, [x0, x1]),
                };
                out.push(case.detail(detail.clone()));
            }
            // The second operand is a constant of 8-bit integers; the first one is quantized at run time.
            for asymmetric_quantize_inputs in [false, true] {
                let p = params(adj_x, adj_y).asymmetric_quantize_inputs(asymmetric_quantize_inputs);
                let weights = x(Int8, &b).constant().q(0.02, 0);
                let case = Case::new(Op::BATCH_MATMUL, p, [x(Float32, &a), weights]);
                out.push(case.detail(format!("hybrid_{detail}_{asymmetric_quantize_inputs}")));
            }
        }
    }
}

fn swapped(shape: &[usize], swap: bool) -> Vec<usize> {
    let mut shape = shape.to_vec();
    let n = shape.len();
    if swap {
        shape.swap(n - 1, n - 2);
    }
    shape
}
