//! Elementwise ops of two inputs: arithmetic, comparisons, selections.

use delegraph_core::ops::binary::{AddParams, DivParams, MulParams, SubParams};

use super::super::prelude::*;
use super::draw::Draw;
use super::finish;

/// Returns two shapes that broadcast: each dimension is equal, 1, or missing at the front.
pub(super) fn broadcast(draw: &mut Draw, ranks: [usize; 2], most: usize) -> [Vec<usize>; 2] {
    let shape = draw.shape(ranks[0].max(ranks[1]), most);
    let ones = draw.pick(&[0, 0, 20, 50]);
    ranks.map(|rank| {
        let tail = &shape[shape.len() - rank..];
        tail.iter().map(|&d| if draw.chance(ones) { 1 } else { d }).collect()
    })
}

pub(super) fn params(op: Op, fused_activation_function: Activation) -> Params {
    match op {
        Op::ADD => AddParams::default()
            .fused_activation_function(fused_activation_function)
            .pot_scale_int16(false)
            .into(),
        Op::SUB => SubParams::default()
            .fused_activation_function(fused_activation_function)
            .pot_scale_int16(false)
            .into(),
        Op::MUL => MulParams::default().fused_activation_function(fused_activation_function).into(),
        Op::DIV => DivParams::default().fused_activation_function(fused_activation_function).into(),
        _ => Params::None,
    }
}

fn fuses(op: Op) -> bool {
    matches!(op, Op::ADD | Op::SUB | Op::MUL | Op::DIV)
}

/// Arithmetic of two inputs.
#[derive(Debug, Clone)]
struct Binary {
    op: Op,
    ty: TensorType,
    shapes: [Vec<usize>; 2],
    activation: Activation,
    /// The index of the constant operand, if one is constant.
    constant: Option<usize>,
}

impl Binary {
    fn random(draw: &mut Draw, op: Op, ty: TensorType, ranks: Option<[usize; 2]>) -> Self {
        let most = if op == Op::ATAN2 { 4 } else { 5 };
        let ranks = ranks.unwrap_or_else(|| {
            let a = draw.size(0, most);
            if draw.chance(50) { [a, a] } else { [a, draw.size(0, most)] }
        });
        let mut shapes = broadcast(draw, ranks, 400);
        if op == Op::ATAN2 {
            shapes[1] = shapes[0].clone();
        }
        let activation = if fuses(op) && ty != Complex64 { draw.activation() } else { Activation::None };
        Binary { op, ty, shapes, activation, constant: draw.pick(&[None, None, None, Some(0), Some(1)]) }
    }

    fn operands(&self, left: Operand, right: Operand) -> [Operand; 2] {
        match self.constant {
            Some(0) => [left.constant(), right],
            Some(_) => [left, right.constant()],
            None => [left, right],
        }
    }

    /// Returns the case of floats, or of integers without scales.
    fn plain(&self) -> Case {
        let (op, ty) = (self.op, self.ty);
        let float = matches!(ty, Float32 | Float16 | BFloat16 | Float64 | Complex64);
        let (mut left, mut right) = (x(ty, &self.shapes[0]), x(ty, &self.shapes[1]));
        match (op, float) {
            (Op::POW, true) => (left, right) = (left.range(0.1, 3.0), right.range(-2.0, 3.0)),
            (Op::POW, false) => (left, right) = (left.range(-3.0, 3.0), right.range(0.0, 5.0)),
            (Op::DIV | Op::FLOOR_DIV | Op::FLOOR_MOD, true) => {
                (left, right) = (left.range(-9.0, 9.0), right.range(-4.0, -0.5));
            }
            (Op::DIV | Op::FLOOR_DIV | Op::FLOOR_MOD, false) => {
                (left, right) = (left.range(-100.0, 100.0), right.range(-9.0, -2.0));
            }
            (Op::RIGHT_SHIFT, _) => right = right.range(0.0, 9.0),
            (Op::BITWISE_XOR, _) | (Op::MAXIMUM | Op::MINIMUM, false) => {}
            (_, false) => (left, right) = (left.range(-100.0, 100.0), right.range(-30.0, 90.0)),
            _ => {}
        }
        if matches!(ty, UInt8 | UInt16 | UInt32) && matches!(op, Op::MUL | Op::FLOOR_DIV | Op::FLOOR_MOD) {
            (left, right) = (left.range(0.0, 200.0), right.range(1.0, 9.0));
        }
        Case::new(op, params(op, self.activation), self.operands(left, right))
    }

    fn quantized(&self, draw: &mut Draw) -> Case {
        let (op, ty) = (self.op, self.ty);
        let small = if ty == Int16 { 1.0 / 250.0 } else { 1.0 };
        let scales = [draw.real(0.01, 0.1) * small, draw.real(0.01, 0.1) * small];
        let zeros = [draw.zero(ty), draw.zero(ty)];
        let half = if ty == Int16 { 32_768.0 } else { 128.0 };
        let reach = scales.map(|s| s * half);
        let result = match op {
            Op::MUL => reach[0] * reach[1],
            Op::SQUARED_DIFFERENCE => (reach[0] + reach[1]).powi(2),
            Op::DIV => 6.0 * reach[0] / reach[1],
            _ => reach[0] + reach[1],
        };
        let out = result * draw.real(0.3, 0.9) / half;
        let left = x(ty, &self.shapes[0]).q(scales[0], zeros[0]);
        let mut right = x(ty, &self.shapes[1]).q(scales[1], zeros[1]);
        if op == Op::DIV {
            // A divisor range without zero.
            let zero = zeros[1] as f64;
            let (low, high) = if ty == UInt8 { (0.0, 255.0) } else { (-128.0, 127.0) };
            right = if zero - low > high - zero {
                right.range(low, zero - 20.0)
            } else {
                right.range(zero + 20.0, high)
            };
        }
        Case::new(op, params(op, self.activation), self.operands(left, right)).q(out, draw.zero(ty))
    }

    /// Returns the case with one scale for all operands, as extrema require.
    fn extremum(&self, draw: &mut Draw) -> Case {
        let (scale, zero) = (draw.real(0.01, 0.1), draw.zero(self.ty));
        let operands = [0, 1].map(|i| x(self.ty, &self.shapes[i]).q(scale, zero));
        let [left, right] = operands;
        Case::new(self.op, Params::None, self.operands(left, right)).q(scale, zero)
    }

    fn case(&self, draw: &mut Draw, quantized: bool) -> Case {
        let bytes = matches!(self.ty, Int8 | UInt8 | Int16);
        match self.op {
            Op::MAXIMUM | Op::MINIMUM if bytes => self.extremum(draw),
            _ if quantized => self.quantized(draw),
            _ => self.plain(),
        }
    }
}

const PLAIN: &[(Op, &[TensorType])] = &[
    (Op::ADD, &[Float32, Float32, Int32, Int64, Float16]),
    (Op::SUB, &[Float32, Float32, Int32, Int64]),
    (Op::MUL, &[Float32, Float32, Int32, Int64, Complex64, Float16]),
    (Op::DIV, &[Float32, Float32, Int32]),
    (Op::MAXIMUM, &[Float32, Int8, UInt8, Int16, Int32, Int64, Float16]),
    (Op::MINIMUM, &[Float32, Int8, UInt8, Int16, Int32, Int64, Float16]),
    (Op::POW, &[Float32, Int32]),
    (Op::SQUARED_DIFFERENCE, &[Float32, Int32]),
    (Op::FLOOR_DIV, &[Float32, Int8, Int16, Int32]),
    (Op::FLOOR_MOD, &[Float32, Int8, Int16, Int32, Int64]),
    (Op::ATAN2, &[Float32, Float64]),
    (Op::BITWISE_XOR, &[Int8, UInt8, Int16, UInt16, Int32, UInt32]),
    (Op::RIGHT_SHIFT, &[Int8, UInt8, Int16, UInt16, Int32, UInt32]),
];

const QUANTIZED: &[(Op, &[TensorType])] = &[
    (Op::ADD, &[Int8, UInt8, Int16]),
    (Op::SUB, &[Int8, UInt8, Int16]),
    (Op::MUL, &[Int8, UInt8, Int16]),
    (Op::DIV, &[Int8, UInt8]),
    (Op::SQUARED_DIFFERENCE, &[Int8]),
];

const COMPARED: &[TensorType] = &[Float32, Float32, Int8, UInt8, Int32, Int64, Float16];

pub(super) fn cases(seed: u64, out: &mut Vec<Case>) {
    for (table, quantized, count) in [(PLAIN, false, 9), (QUANTIZED, true, 22)] {
        for &(op, types) in table {
            for (t, &ty) in types.iter().enumerate() {
                for i in 0..count {
                    let mut draw = Draw::new(seed, &format!("{op:?}{t}{quantized}"), i);
                    let case = Binary::random(&mut draw, op, ty, None).case(&mut draw, quantized);
                    out.push(finish(case, &mut draw, if quantized { "quantized" } else { "" }, i));
                }
            }
        }
    }
    // Every pair of ranks.
    for (op, ty) in
        [(Op::ADD, Float32), (Op::MUL, Float32), (Op::SUB, Float32), (Op::ADD, Int8), (Op::MUL, Int8)]
    {
        for pair in 0..36 {
            let ranks = [pair / 6, pair % 6];
            let mut draw = Draw::new(seed, &format!("ranks{op:?}{ty:?}"), pair);
            let problem = Binary::random(&mut draw, op, ty, Some(ranks));
            let problem = Binary { activation: Activation::None, ..problem };
            let case = problem.case(&mut draw, ty == Int8);
            out.push(finish(case, &mut draw, &format!("ranks_{}_{}", ranks[0], ranks[1]), 0));
        }
    }
    exhaustive(out);
    signs(out);
    compared(seed, out);
    selected(seed, out);
}

/// Divisions, remainders and powers of positive and negative operands.
fn signs(out: &mut Vec<Case>) {
    let floats = [-7.5f32, -6.0, -2.0, -0.5, 0.5, 2.0, 6.0, 7.5];
    let by = [-3.0f32, -1.5, -0.5, 0.5, 1.5, 3.0];
    for op in [Op::DIV, Op::FLOOR_DIV, Op::FLOOR_MOD] {
        let inputs = [given(&[8, 1], &floats), given(&[1, 6], &by)];
        out.push(Case::new(op, params(op, Activation::None), inputs).seeded(1).detail("signs"));
    }
    let values = [-100.0, -7.0, -6.0, -1.0, 0.0, 1.0, 6.0, 7.0, 100.0];
    let by = [-7.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 7.0];
    for (op, types) in [
        (Op::DIV, &[Int32][..]),
        (Op::FLOOR_DIV, &[Int8, Int16, Int32]),
        (Op::FLOOR_MOD, &[Int8, Int16, Int32, Int64]),
    ] {
        for &ty in types {
            let inputs = [numbers(ty, &[9, 1], &values), numbers(ty, &[1, 8], &by)];
            out.push(Case::new(op, params(op, Activation::None), inputs).seeded(1).detail("signs"));
        }
    }
    let exponents = [-3.0f32, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0];
    let bases = [-2.0f32, -1.5, -1.0, -0.5, 0.5, 1.0, 2.5];
    let inputs = [given(&[7, 1], &bases), given(&[1, 7], &exponents)];
    out.push(Case::new(Op::POW, Params::None, inputs).seeded(1).detail("signs"));
}

/// Creates a fed operand of an integer type with these elements.
fn numbers(ty: TensorType, shape: &[usize], values: &[f64]) -> Operand {
    match ty {
        Int8 => given(shape, &values.iter().map(|&v| v as i8).collect::<Vec<_>>()),
        Int16 => given(shape, &values.iter().map(|&v| v as i16).collect::<Vec<_>>()),
        Int64 => given(shape, &values.iter().map(|&v| v as i64).collect::<Vec<_>>()),
        _ => given(shape, &values.iter().map(|&v| v as i32).collect::<Vec<_>>()),
    }
}

/// All pairs of 8-bit values, which covers all rounding and saturation.
fn exhaustive(out: &mut Vec<Case>) {
    for op in [Op::ADD, Op::SUB, Op::MUL, Op::SQUARED_DIFFERENCE, Op::MAXIMUM] {
        for ty in if op == Op::SQUARED_DIFFERENCE { &[Int8][..] } else { &[Int8, UInt8] } {
            let values: Vec<u8> = (0..=255).collect();
            let middle = if *ty == Int8 { 0 } else { 128 };
            let (a, b, c) = match op {
                Op::MAXIMUM => ((0.05, middle + 3), (0.05, middle + 3), (0.05, middle + 3)),
                Op::MUL => ((0.043, middle - 7), (0.031, middle + 12), (0.1, middle + 5)),
                Op::SQUARED_DIFFERENCE => ((0.043, middle - 7), (0.031, middle + 12), (0.37, middle - 100)),
                _ => ((0.043, middle - 7), (0.031, middle + 12), (0.063, middle - 11)),
            };
            let inputs = [
                x(*ty, &[256, 1]).bytes(values.clone()).q(a.0, a.1),
                x(*ty, &[1, 256]).bytes(values).q(b.0, b.1),
            ];
            let case = Case::new(op, params(op, Activation::None), inputs).q(c.0, c.1);
            out.push(case.seeded(1).detail("all_pairs"));
        }
    }
}

fn compared(seed: u64, out: &mut Vec<Case>) {
    let ops = [Op::EQUAL, Op::NOT_EQUAL, Op::LESS, Op::LESS_EQUAL, Op::GREATER, Op::GREATER_EQUAL];
    let logic = [(Op::LOGICAL_AND, &[Bool, Bool][..]), (Op::LOGICAL_OR, &[Bool, Bool])];
    for (op, types) in ops.map(|op| (op, COMPARED)).into_iter().chain(logic) {
        for (t, &ty) in types.iter().enumerate() {
            for i in 0..7 {
                let mut draw = Draw::new(seed, &format!("{op:?}{t}"), i);
                let ranks = [draw.size(0, 4), draw.size(0, 4)];
                let shapes = broadcast(&mut draw, ranks, 200);
                let (scale, zero) = (draw.real(0.05, 0.06), draw.zero(ty));
                // Few distinct values, so that many elements are equal.
                let operand = |draw: &mut Draw, shape: &[usize]| match ty {
                    Bool => x(ty, shape),
                    Int8 => x(ty, shape).range(-3.0, 3.0).q(scale, zero),
                    UInt8 => x(ty, shape).range(120.0, 126.0).q(scale, zero),
                    Float32 => {
                        let values = [1.5f32, -0.5, 0.0, -0.0, 2.0, 1.500_000_1];
                        let n = shape.iter().product::<usize>();
                        let elements: Vec<f32> = (0..n).map(|_| draw.pick(&values)).collect();
                        given(shape, &elements)
                    }
                    _ => x(ty, shape).range(-2.0, 2.0),
                };
                let inputs = [operand(&mut draw, &shapes[0]), operand(&mut draw, &shapes[1])];
                let case = Case::new(op, Params::None, inputs).outputs([Output::of(Bool)]);
                out.push(finish(case, &mut draw, "", i));
            }
        }
    }
}

fn selected(seed: u64, out: &mut Vec<Case>) {
    for ty in [Float32, Float32, Int8, UInt8, Int16, Int32, Int64, Bool, Float16] {
        for i in 0..11 {
            let mut draw = Draw::new(seed, &format!("select{ty:?}{}", out.len()), i);
            let rank = draw.size(0, 4);
            let shape = draw.shape(rank, 200);
            let old = draw.chance(30);
            let ones = draw.pick(&[0, 20, 40]);
            let mut operand = |ty: TensorType, drop: bool| {
                let front = if drop && draw.chance(30) { draw.below(rank + 1) } else { 0 };
                let shape: Vec<usize> =
                    shape[front..].iter().map(|&d| if drop && draw.chance(ones) { 1 } else { d }).collect();
                x(ty, &shape)
            };
            let inputs = [operand(Bool, !old), operand(ty, !old).auto(), operand(ty, !old).auto()];
            let op = if old { Op::SELECT } else { Op::SELECT_V2 };
            let case = Case::new(op, Params::None, inputs).auto(ty).outputs_of(ty).of(ty);
            out.push(finish(case.in_family("select"), &mut draw, "", i));
        }
    }
}
