//! Random variations of the cases, for comparisons with LiteRT beyond the recorded results.
//!
//! A mutant changes up to four properties of a case: sizes, types, constants, params, quantization, values, versions,
//! omitted operands. Many are invalid, which is intended: kernels must reject them, or return LiteRT's result. In graphs
//! of several nodes, which the seed selects, only the values change.

use std::cell::RefCell;
use std::rc::Rc;

use delegraph_core::Quantization;
use delegraph_core::ops::{FieldKind, ParamValue, definition};
use delegraph_core::quantization::Affine;

use super::generate::Draw;
use super::operand::{Kind, integers, outside};
use super::prelude::*;

/// Values at the edges of float arithmetic.
const FLOATS: &[f64] = &[
    0.0,
    -0.0,
    1.0,
    -1.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    1e-40,
    -1e-40,
    f32::MAX as f64,
    f32::MIN as f64,
    0.5,
    -0.5,
    1.5,
    2.5,
    65504.0,
    16_777_217.0,
];

/// Values at the edges of the integer types, clamped to the operand's.
const INTEGERS: &[f64] = &[
    0.0,
    1.0,
    -1.0,
    127.0,
    -128.0,
    255.0,
    32_767.0,
    -32_768.0,
    2_147_483_647.0,
    -2_147_483_648.0,
    31.0,
    32.0,
    -2.0,
];

/// The maximum number of elements of an operand, so that LiteRT takes milliseconds.
const MAX_ELEMENTS: usize = 1 << 14;

/// Returns mutant `index` of `seed`. The same numbers give the same mutant; `None` if the mutation cannot be written as a
/// model.
pub fn mutant(seed: u64, index: usize) -> Option<Case> {
    let mut draw = Draw::new(seed, "mutant", index);
    let bases = bases(seed);
    let base = bases.get(draw.below(bases.len()))?;
    let mut case = base.clone().seeded(draw.seed());
    case.verdict = Verdict::LiteRt;
    let base_name = if base.name.is_empty() { base.label() } else { base.name.clone() };
    // Some cases get only different data.
    for _ in 0..draw.below(5) {
        match base.is_single() {
            true => change(&mut case, &mut draw),
            false => scale(&mut case, &mut draw),
        }
    }
    symmetric_weights(&mut case);
    if base.is_single() {
        case.output_as(base);
    }
    let elements = |o: &Operand| o.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    if case.inputs.iter().flatten().any(|o| elements(o).is_none_or(|n| n > MAX_ELEMENTS)) {
        return None;
    }
    case.name = format!("mutant_{seed}_{index}/{}", base_name.replace('/', "-"));
    Some(case)
}

thread_local! {
    static BASES: RefCell<Option<(u64, Rc<Vec<Case>>)>> = const { RefCell::new(None) };
}

/// Returns the compared cases of the suite of `seed`.
pub(super) fn bases(seed: u64) -> Rc<Vec<Case>> {
    BASES.with_borrow_mut(|last| match last {
        Some((of, bases)) if *of == seed => Rc::clone(bases),
        _ => {
            let mut bases = super::suite(seed);
            bases.retain(|c| !matches!(c.verdict, Verdict::NotCompared(_)));
            let bases = Rc::new(bases);
            *last = Some((seed, Rc::clone(&bases)));
            bases
        }
    })
}

fn change(case: &mut Case, draw: &mut Draw) {
    match draw.below(13) {
        0..=2 => resize(case, draw),
        3..=5 => set_param(case, draw),
        6 => requantize(case, draw),
        7 | 8 => revalue(case, draw),
        9 => retype(case, draw),
        10 => {
            if let Some(operand) = any_operand(case, draw) {
                operand.kind = if operand.kind == Kind::Fed { Kind::Constant } else { Kind::Fed };
            }
        }
        11 => {
            // LiteRT dereferences omitted operands that it needs, so only the last one is omitted.
            if draw.chance(30)
                && let Some(last) = case.inputs.last_mut()
            {
                *last = None;
            }
        }
        _ => {
            let versions = super::versions(case.op);
            if !versions.is_empty() {
                case.version = Some(draw.pick(&versions));
            }
        }
    }
}

fn any_operand<'a>(case: &'a mut Case, draw: &mut Draw) -> Option<&'a mut Operand> {
    let count = case.inputs.iter().flatten().count();
    let index = draw.below(count);
    case.inputs.iter_mut().flatten().filter(|o| o.kind != Kind::Variable).nth(index)
}

/// Changes the rank, or one extent, in all operands that share it or in a single one.
fn resize(case: &mut Case, draw: &mut Draw) {
    let Some(operand) = any_operand(case, draw) else { return };
    let mut shape = operand.shape.to_vec();
    if draw.chance(15) || shape.is_empty() {
        match (draw.chance(50), shape.first()) {
            (true, Some(1)) => drop(shape.remove(0)),
            _ => shape.insert(0, 1),
        }
        operand.resize(&shape);
        return;
    }
    let at = draw.below(shape.len());
    let (old, new) = (shape[at], draw.pick(&[0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 31, 32, 33, 64]));
    if draw.chance(40) {
        shape[at] = new;
        operand.resize(&shape);
        return;
    }
    for operand in case.inputs.iter_mut().flatten() {
        let same = |d: &usize| if *d == old { new } else { *d };
        operand.resize(&operand.shape.iter().map(same).collect::<Vec<_>>());
    }
}

/// Sets a param to a valid value of its kind, often an unusual one.
fn set_param(case: &mut Case, draw: &mut Draw) {
    let Some(codec) = definition(case.op).map(|def| &def.codec) else { return };
    if codec.fields.is_empty() {
        return;
    }
    let field = draw.pick(codec.fields);
    let int = match draw.chance(2) {
        true => draw.pick(&[1 << 30, i64::from(i32::MAX), i64::from(i32::MIN)]),
        false => draw.pick(&[0, 1, 1, 2, 2, 3, 4, 5, -1, -2, 7, 100]),
    };
    let ints: Vec<i64> = (0..draw.below(7)).map(|_| draw.pick(&[0, 1, 1, 1, 2, 2, 3, -1, -2, 5])).collect();
    let narrow: Vec<i32> = ints.iter().map(|&v| v as i32).collect();
    let value = match field.kind {
        FieldKind::Bool => ParamValue::Bool(draw.chance(50)),
        FieldKind::Int32 | FieldKind::UInt32 | FieldKind::Int64 => ParamValue::Int(int),
        FieldKind::Float32 => ParamValue::Float(
            draw.pick(&[0.0, -0.0, 1.0, -1.0, 0.5, 1e-6, 6.0, -0.25, 3.0, 20.0, 1e10, 1e-30]),
        ),
        FieldKind::Enum(name) => ParamValue::Enum(draw.below(6) as i64, name),
        FieldKind::Ints64 => ParamValue::Ints(&ints),
        FieldKind::Ints32 => ParamValue::Ints32(&narrow),
        _ => return,
    };
    // Unsupported values leave the param unchanged.
    let _ = case.params.set(field.name, &value);
}

/// Changes the scale and zero point of one operand or output, or sets all of them to the same values.
fn requantize(case: &mut Case, draw: &mut Draw) {
    let scale = draw.real(0.5, 2.0) * 2f32.powi(draw.int(-12, 3) as i32);
    let zero = |ty: TensorType, draw: &mut Draw| {
        let (least, most) = integers(ty);
        draw.zero(ty).clamp(least as i64, most as i64)
    };
    if draw.chance(40) {
        for output in &mut case.outputs {
            if let Some(Quantization::Affine(affine)) = &mut output.quantization {
                affine.scales.fill(scale);
                let ty = output.ty.or(case.inputs.iter().flatten().map(|o| o.ty).next()).unwrap_or(Int8);
                affine.zero_points = vec![zero(ty, draw); affine.scales.len()].into();
            }
        }
        return;
    }
    let Some(operand) = any_operand(case, draw) else { return };
    let ty = operand.ty;
    if let Some(Quantization::Affine(Affine { scales, zero_points, .. })) = &mut operand.quantization {
        let factor = scale / scales.first().copied().unwrap_or(1.0);
        scales.iter_mut().for_each(|s| *s *= factor);
        if scales.len() == 1 {
            *zero_points = vec![zero(ty, draw)].into();
        }
    }
}

/// Fills an operand with values at the edges, from a wide range, or with small integers.
fn revalue(case: &mut Case, draw: &mut Draw) {
    // Recurrent layers with large weights amplify rounding errors from step to step.
    let recurrent = [
        Op::LSTM,
        Op::UNIDIRECTIONAL_SEQUENCE_LSTM,
        Op::BIDIRECTIONAL_SEQUENCE_LSTM,
        Op::RNN,
        Op::UNIDIRECTIONAL_SEQUENCE_RNN,
        Op::BIDIRECTIONAL_SEQUENCE_RNN,
    ];
    let most = if recurrent.contains(&case.op) { 1.0 } else { 100.0 };
    let Some(operand) = any_operand(case, draw) else { return };
    if draw.chance(50) {
        operand.set_element(draw.below(64), draw.int(-4, 6));
        return;
    }
    let integer =
        matches!(operand.ty, Int32 | Int64 | UInt32 | UInt64 | Int16 | UInt16 | Int8 | UInt8 | Bool);
    let current = operand.clone();
    *operand = match (integer, draw.below(3)) {
        (true, 0) => current.mixed(INTEGERS),
        (true, 1) => current.range(-3.0f64.max(integers(operand.ty).0), 3.0),
        (true, _) => {
            let (least, most) = integers(operand.ty);
            current.range(least.max(-1e9), most.min(1e9))
        }
        (false, 0) => current.mixed(FLOATS),
        (false, 1) => current.range(-1e-3, 1e-3),
        (false, _) => current.range(-most, most),
    };
}

/// Sets another range for the floats of a graph. They stay finite: conversions of NaN and infinities to integers are
/// undefined in C++. Integers are unchanged, since they may be the bounds of loops.
fn scale(case: &mut Case, draw: &mut Draw) {
    let Some(operand) = any_operand(case, draw).filter(|o| o.ty == Float32) else { return };
    let most = draw.pick(&[1e-3, 1.0, 10.0, 100.0]);
    *operand = operand.clone().range(-most, most);
}

/// Removes -128 from the INT8 weights of floats: the format requires symmetric weights, and LiteRT's SIMD kernels
/// negate them in 8 bits. These kernels read UINT8 weights as INT8.
pub(super) fn symmetric_weights(case: &mut Case) {
    if case.data_type() != Some(Float32) {
        return;
    }
    for (i, operand) in case.inputs.iter_mut().enumerate().skip(1) {
        let Some(operand) = operand.as_mut().filter(|o| matches!(o.ty, Int8 | UInt8)) else { continue };
        *operand = match (operand.kind, operand.limits()) {
            // The data of other invocations differs.
            (Kind::Fed, Some((low, high))) if operand.ty == Int8 => {
                operand.clone().range(low.max(-127.0), high.max(-127.0))
            }
            _ => {
                let bytes = operand.data(i, 0).into_iter().map(|byte| if byte == 0x80 { 0x81 } else { byte });
                operand.clone().bytes(bytes.collect())
            }
        };
    }
}

/// Changes the type of one operand, or of all operands and outputs of the data type.
fn retype(case: &mut Case, draw: &mut Draw) {
    let types = [Float32, Int8, UInt8, Int16, Int32, Int64, Float16, Bool, UInt32];
    let ty = draw.pick(&types);
    if draw.chance(60) {
        let Some(from) = case.data_type() else { return };
        for operand in case.inputs.iter_mut().flatten().filter(|o| o.ty == from) {
            operand.retype(ty);
        }
        for output in case.outputs.iter_mut().filter(|o| o.ty.is_none_or(|t| t == from)) {
            output.ty = Some(ty);
        }
        case.data_type = None;
    } else if let Some(operand) = any_operand(case, draw)
        && outside(operand.ty) == operand.ty
    {
        operand.retype(ty);
    }
}
