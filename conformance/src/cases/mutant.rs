//! Random variations of the cases, for comparing kernels with LiteRT beyond what is recorded.
//!
//! A mutant changes one to four things of a case: sizes, types, constants, params, quantization, values, versions. Many
//! are invalid, which is intended: kernels must refuse them, or return what LiteRT returns.

use std::sync::OnceLock;

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

/// The most elements of an operand, so that LiteRT takes milliseconds.
const MAX_ELEMENTS: usize = 1 << 14;

/// Returns mutant `index` of `seed`. The same numbers give the same mutant; `None` if the mutation cannot be written as a
/// model.
pub fn mutant(seed: u64, index: usize) -> Option<Case> {
    let mut draw = Draw::new(seed, "mutant", index);
    let bases = bases();
    let base = bases.get(draw.below(bases.len()))?;
    let mut case = base.clone().seeded(draw.seed());
    case.verdict = Verdict::LiteRt;
    let base_name = if base.name.is_empty() { base.label() } else { base.name.clone() };
    // Some cases only get other data.
    for _ in 0..draw.below(5) {
        change(&mut case, &mut draw);
    }
    case.output_as(base);
    let elements = |o: &Operand| o.shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    if case.inputs.iter().flatten().any(|o| elements(o).is_none_or(|n| n > MAX_ELEMENTS)) {
        return None;
    }
    case.name = format!("mutant_{seed}_{index}/{}", base_name.replace('/', "-"));
    Some(case)
}

/// The cases of single nodes, which a mutation can change.
fn bases() -> &'static [Case] {
    static BASES: OnceLock<Vec<Case>> = OnceLock::new();
    BASES.get_or_init(|| {
        let mut bases = super::suite(super::DEFAULT_SEED);
        bases.retain(|c| c.is_single() && !matches!(c.verdict, Verdict::NotCompared(_)));
        bases
    })
}

fn change(case: &mut Case, draw: &mut Draw) {
    match draw.below(12) {
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

/// Changes one extent, in every operand that has the same or in one alone, or the rank.
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

/// Sets a param to a value that its kind allows, often an unusual one.
fn set_param(case: &mut Case, draw: &mut Draw) {
    let Some(codec) = definition(case.op).map(|def| &def.codec) else { return };
    if codec.fields.is_empty() {
        return;
    }
    let field = draw.pick(codec.fields);
    let int = draw.pick(&[0, 1, 1, 2, 2, 3, 4, 5, -1, -2, 7, 100]);
    let value = match field.kind {
        FieldKind::Bool => ParamValue::Bool(draw.chance(50)),
        FieldKind::Int32 | FieldKind::UInt32 | FieldKind::Int64 => ParamValue::Int(int),
        FieldKind::Float32 => {
            ParamValue::Float(draw.pick(&[0.0, 1.0, -1.0, 0.5, 1e-6, 6.0, -0.25, 3.0, 20.0]))
        }
        FieldKind::Enum(name) => ParamValue::Enum(draw.below(6) as i64, name),
        _ => return,
    };
    // Values that the param does not take leave it as it is.
    let _ = case.params.set(field.name, &value);
}

/// Changes the scale and zero point of an operand or an output, or of all of them to the same.
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
        (false, _) => current.range(-100.0, 100.0),
    };
}

/// Changes the type of one operand, or of all that have the same and of the outputs.
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
