//! The operands of a case's op: types, shapes, quantization, and seeded data.

use std::borrow::Cow;

use crate::seeded::SplitMix64;
use delegraph_core::ops::cast::CastParams;
use delegraph_core::quantization::Affine;
use delegraph_core::sparsity::Sparsity;
use delegraph_core::{BuiltinOp, Element, Quantization, Shape, SubgraphBuilder, TensorId, TensorType};

/// The seed of the listed cases. Operands use different streams by index and invocation.
const SEED: u64 = 2;

/// The source of an operand's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Set by the caller.
    Fed,
    /// Stored in the file.
    Constant,
    /// State, initially zero.
    Variable,
}

/// The values of an operand.
#[derive(Debug, Clone)]
enum Values {
    /// Uniform in a range, including the upper end for integers and excluding it for floats.
    Range(f64, f64),
    /// Uniform in a range, with some of these values in between.
    Mixed(f64, f64, Cow<'static, [f64]>),
    /// The same bytes in every invocation.
    Bytes(Vec<u8>),
}

/// An operand of the op.
#[derive(Debug, Clone)]
pub struct Operand {
    /// Element type.
    pub ty: TensorType,
    /// Shape.
    pub shape: Shape,
    /// The source of its data.
    pub kind: Kind,
    /// Quantization, if any.
    pub quantization: Option<Quantization>,
    /// The seed of its data.
    pub(super) seed: u64,
    /// Whether the file stores a constant of floats in 16 bits, behind DEQUANTIZE.
    pub(super) half: bool,
    sparsity: Option<Sparsity>,
    /// The number of elements per block, each with a scale in a separate tensor.
    block: Option<usize>,
    values: Values,
    /// The seed of differences in the last bits of floats.
    nudge: Option<u64>,
}

/// Creates an operand that the caller fills: over the whole range of small integer types, from -4 to 4 for wider types,
/// and from 0 to 4 for unsigned ones.
pub(super) fn x(ty: TensorType, shape: &[usize]) -> Operand {
    use TensorType::*;
    let values = match ty {
        Bool => (0.0, 1.0),
        Int8 => (-128.0, 127.0),
        UInt8 => (0.0, 255.0),
        Int16 => (-32768.0, 32767.0),
        Int4 => (-8.0, 7.0),
        UInt4 => (0.0, 15.0),
        Int2 => (-2.0, 1.0),
        UInt16 | UInt32 | UInt64 => (0.0, 4.0),
        _ => (-4.0, 4.0),
    };
    let values = Values::Range(values.0, values.1);
    Operand {
        ty,
        shape: Shape::new(shape),
        kind: Kind::Fed,
        quantization: None,
        seed: SEED,
        half: false,
        sparsity: None,
        block: None,
        values,
        nudge: None,
    }
}

/// Creates an operand with these elements, set by the caller.
pub(super) fn given<E: Element>(shape: &[usize], elements: &[E]) -> Operand {
    x(E::TYPE, shape).with(elements)
}

/// Creates a constant with these elements.
pub(super) fn known<E: Element>(shape: &[usize], elements: &[E]) -> Operand {
    given(shape, elements).constant()
}

/// Creates a constant vector.
pub(super) fn list(elements: &[i32]) -> Operand {
    known(&[elements.len()], elements)
}

/// Creates an operand of strings, set by the caller.
pub(super) fn strings(shape: &[usize], elements: &[&str]) -> Operand {
    let mut ends = (elements.len() + 2) * 4;
    let mut bytes = (elements.len() as i32).to_le_bytes().to_vec();
    bytes.extend((ends as i32).to_le_bytes());
    for element in elements {
        ends += element.len();
        bytes.extend((ends as i32).to_le_bytes());
    }
    elements.iter().for_each(|element| bytes.extend(element.as_bytes()));
    Operand { values: Values::Bytes(bytes), ..x(TensorType::String, shape) }
}

impl Operand {
    /// Stores the data in the file.
    #[must_use]
    pub fn constant(self) -> Self {
        Operand { kind: Kind::Constant, ..self }
    }

    /// Stores the data in the file in 16 bits, behind DEQUANTIZE.
    pub(super) fn halved(self) -> Self {
        Operand { kind: Kind::Constant, half: true, ..self }
    }

    /// Makes the operand a variable, which keeps its state between invocations.
    #[must_use]
    pub fn variable(self) -> Self {
        Operand { kind: Kind::Variable, ..self }
    }

    /// Sets the range of the data, from `low` to `high`.
    #[must_use]
    pub fn range(self, low: f64, high: f64) -> Self {
        Operand { values: Values::Range(low, high), ..self }
    }

    /// Sets some elements to these values, in turn; integers are clamped to their type.
    pub(super) fn mixed(self, values: &'static [f64]) -> Self {
        let (low, high) = self.limits().unwrap_or((-4.0, 4.0));
        Operand { values: Values::Mixed(low, high, values.into()), ..self }
    }

    pub(super) fn limits(&self) -> Option<(f64, f64)> {
        match self.values {
            Values::Range(low, high) | Values::Mixed(low, high, _) => Some((low, high)),
            Values::Bytes(_) => None,
        }
    }

    /// Returns whether the data may contain NaN, infinities or denormals.
    pub(super) fn may_be_special(&self) -> bool {
        !matches!(self.values, Values::Range(..))
    }

    /// Returns the largest magnitude of the operand's real values as operand `index`, if they are floats or quantized.
    pub(super) fn magnitude(&self, index: usize) -> Option<f64> {
        use TensorType::*;
        let largest = match self.limits() {
            Some((low, high)) => low.abs().max(high.abs()),
            None => {
                let elements = crate::compare::numbers(self.ty, &self.data(index, 0))?;
                elements.iter().filter(|v| v.is_finite()).fold(0.0, |m, v| v.abs().max(m))
            }
        };
        let affine = self.quantization.as_ref().and_then(|q| q.affine());
        match (self.ty, affine) {
            (Float32 | Float64 | Float16 | BFloat16 | Complex64 | Complex128, _) => Some(largest),
            (Int8 | UInt8 | Int16 | Int4 | Int2 | UInt4, Some(affine)) => {
                let scale = affine.scales.iter().fold(0f32, |m, s| m.max(*s));
                Some(largest * f64::from(scale))
            }
            _ => None,
        }
    }

    /// Replaces NaN, and floats from `overflow` on, by this number.
    pub(super) fn moderate(&mut self, number: f64, overflow: f64) {
        let replaced = |v: f64| if v.abs() < overflow { v } else { number };
        match (&mut self.values, self.ty) {
            (Values::Mixed(_, _, values), ty) if ty.is_float() => {
                values.to_mut().iter_mut().for_each(|v| *v = replaced(*v));
            }
            (Values::Bytes(bytes), TensorType::Float32) => {
                for element in bytes.as_chunks_mut::<4>().0 {
                    let value = f32::from_le_bytes(*element);
                    *element = (replaced(value.into()) as f32).to_le_bytes();
                }
            }
            _ => {}
        }
    }

    /// Sets the elements. If there are fewer than the shape has, they are repeated from the first.
    pub fn with<E: Element>(self, elements: &[E]) -> Self {
        let bytes: Vec<u8> = elements.iter().cycle().take(self.shape.elements()).flat_map(bytes_of).collect();
        self.bytes(bytes)
    }

    /// Sets another shape for the same elements.
    #[must_use]
    pub fn reshaped(self, shape: &[usize]) -> Self {
        Operand { shape: Shape::new(shape), ..self }
    }

    /// Sets another shape. Fixed elements are repeated or cut to its number of elements.
    pub(super) fn resize(&mut self, shape: &[usize]) {
        self.shape = Shape::new(shape);
        let count = shape.iter().fold(1usize, |n, d| n.saturating_mul(*d));
        if let (Values::Bytes(bytes), Some(bits)) = (&mut self.values, self.ty.bits())
            && !bytes.is_empty()
        {
            let length = count.saturating_mul(bits).div_ceil(8).min(1 << 20);
            *bytes = bytes.iter().copied().cycle().take(length).collect();
        }
    }

    /// Sets one of the fixed elements of 32 or 64 bits, chosen by `index`.
    pub(super) fn set_element(&mut self, index: usize, value: i64) {
        let Values::Bytes(bytes) = &mut self.values else { return };
        let width = match self.ty {
            TensorType::Int32 => 4,
            TensorType::Int64 => 8,
            _ => return,
        };
        let count = (bytes.len() / width).max(1);
        if let Some(element) = bytes.chunks_exact_mut(width).nth(index % count) {
            element.copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }

    /// Sets the bytes, in the format of a file.
    #[must_use]
    pub fn bytes(self, bytes: Vec<u8>) -> Self {
        Operand { values: Values::Bytes(bytes), ..self }
    }

    /// Sets one scale and zero point.
    #[must_use]
    pub fn q(self, scale: f32, zero_point: i64) -> Self {
        Operand { quantization: Some(Quantization::per_tensor(scale, zero_point)), ..self }
    }

    /// Sets a scale per index of `dimension`, increasing from `scale`.
    #[must_use]
    pub fn channels(self, scale: f32, dimension: usize) -> Self {
        let count = self.shape.get(dimension).copied().unwrap_or(1);
        self.affine(growing(scale, count), dimension)
    }

    /// Sets these scales along `dimension`, with zero points of 0.
    #[must_use]
    pub fn affine(self, scales: Vec<f32>, dimension: usize) -> Self {
        let zero_points = vec![0; scales.len()].into();
        self.quantization(Quantization::Affine(Affine { scales, zero_points, dimension }))
    }

    /// Sets a scale for every `block` elements of a constant, from `scale` to twice as much, in a float16 tensor.
    #[must_use]
    pub fn blocks(self, scale: f32, block: usize) -> Self {
        Operand { block: Some(block), ..self.q(scale, 0) }
    }

    /// Sets the quantization.
    #[must_use]
    pub fn quantization(self, quantization: Quantization) -> Self {
        Operand { quantization: Some(quantization), ..self }
    }

    /// Sets the scale and zero point that cases use for the type, if the type is quantized.
    #[must_use]
    pub fn auto(self) -> Self {
        match quantum(self.ty) {
            Some((scale, zero_point)) => self.q(scale, zero_point),
            None => self,
        }
    }

    /// Stores only some of the elements.
    #[must_use]
    pub fn sparse(self, sparsity: Sparsity) -> Self {
        Operand { sparsity: Some(sparsity), ..self }
    }

    /// Changes 32-bit floats by up to four units in the last place, drawn from `seed`.
    pub(super) fn nudge(&mut self, seed: u64) {
        self.nudge = Some(seed);
    }

    /// Returns the data of invocation `step`, for the operand at `index`.
    pub fn data(&self, index: usize, step: usize) -> Vec<u8> {
        let mut data = self.drawn_data(index, step);
        if let Some(seed) = self.nudge.filter(|_| self.ty == TensorType::Float32) {
            let mut g = SplitMix64::new(seed).for_input(index).for_invocation(step);
            for element in data.as_chunks_mut::<4>().0 {
                let units = (g.draw() % 9) as f32 - 4.0;
                let value = f32::from_le_bytes(*element);
                *element = (value + value * units * f32::EPSILON).to_le_bytes();
            }
        }
        data
    }

    fn drawn_data(&self, index: usize, step: usize) -> Vec<u8> {
        let (low, high) = match &self.values {
            Values::Bytes(bytes) => return bytes.clone(),
            Values::Range(low, high) | Values::Mixed(low, high, _) => (*low, *high),
        };
        let mut g = self.generator(index, step);
        let mut special = self.special();
        let mut float = || {
            let drawn = low + (high - low) * f64::from(g.draw_f32() + 1.0) / 2.0;
            special().unwrap_or(drawn)
        };
        let n = self.shape.elements();
        use TensorType::*;
        fn each<const N: usize>(n: usize, f: impl FnMut() -> [u8; N]) -> Vec<u8> {
            std::iter::repeat_with(f).take(n).flatten().collect()
        }
        match self.ty {
            Float32 if self.half => each(n, || half::f16::from_f64(float()).to_f32().to_le_bytes()),
            Float32 => each(n, || (float() as f32).to_le_bytes()),
            Float16 => each(n, || half::f16::from_f64(float()).to_le_bytes()),
            BFloat16 => each(n, || half::bf16::from_f64(float()).to_le_bytes()),
            Float64 => each(n, || float().to_le_bytes()),
            Complex64 => each(2 * n, || (float() as f32).to_le_bytes()),
            Complex128 => each(2 * n, || float().to_le_bytes()),
            _ => {
                let count = (high - low) as u64 + 1;
                // A bool with a value other than 0 and 1 is undefined in C++.
                let (least, most) = if self.ty == Bool { (0.0, 1.0) } else { integers(self.ty) };
                let mut integer = || {
                    let drawn = low as i64 + (g.draw() % count) as i64;
                    let drawn = if self.ty == Bool { drawn.clamp(0, 1) } else { drawn };
                    special().map_or(drawn, |v| v.clamp(least, most) as i64)
                };
                match self.ty.bits() {
                    Some(64) => each(n, || integer().to_le_bytes()),
                    Some(32) => each(n, || (integer() as i32).to_le_bytes()),
                    Some(16) => each(n, || (integer() as i16).to_le_bytes()),
                    Some(8) => each(n, || (integer() as i8).to_le_bytes()),
                    Some(bits) => pack(&each(n, || (integer() as i8).to_le_bytes()), bits),
                    None => Vec::new(),
                }
            }
        }
    }

    fn generator(&self, index: usize, step: usize) -> SplitMix64 {
        match self.seed {
            SEED => SplitMix64::new(SEED).for_input(index).for_invocation(step),
            // Neighbouring streams are shifted copies of one sequence; drawing a new seed separates them.
            seed => SplitMix64::new(SplitMix64::new(seed).for_input(index).for_invocation(step).draw()),
        }
    }

    /// Returns a function that makes every third element special, if the operand has special values.
    fn special(&self) -> impl FnMut() -> Option<f64> + use<> {
        let values =
            if let Values::Mixed(_, _, values) = &self.values { values.clone() } else { Cow::default() };
        let mut count = 0usize;
        move || {
            count += 1;
            let wanted = count.is_multiple_of(3) && !values.is_empty();
            wanted.then(|| values.get((count / 3 - 1) % values.len()).copied()).flatten()
        }
    }

    /// Returns the type of the tensor that the caller fills.
    pub fn fed_type(&self) -> TensorType {
        outside(self.ty)
    }

    /// Returns the data of operand `index` in invocation `step`, as the caller sets it.
    pub fn fed_data(&self, index: usize, step: usize) -> Vec<u8> {
        let data = self.data(index, step);
        match self.ty {
            TensorType::Int4 | TensorType::Int2 | TensorType::UInt4 => {
                let bits = self.ty.bits().unwrap_or(8);
                let value = |i: usize| {
                    let raw = (data.get(i * bits / 8).copied().unwrap_or(0) >> (i * bits % 8)) << (8 - bits);
                    let signed = (raw as i8) >> (8 - bits);
                    if self.ty == TensorType::UInt4 {
                        f32::from(raw >> (8 - bits))
                    } else {
                        f32::from(signed)
                    }
                };
                (0..self.shape.elements()).flat_map(|i| value(i).to_le_bytes()).collect()
            }
            TensorType::BFloat16 => {
                let wide = |c: &[u8; 2]| half::bf16::from_le_bytes(*c).to_f32().to_le_bytes();
                data.as_chunks().0.iter().flat_map(wide).collect()
            }
            _ => data,
        }
    }

    /// Sets another type, with seeded data.
    pub(super) fn retype(&mut self, ty: TensorType) {
        let Operand { shape, kind, quantization, .. } = self.clone();
        *self = Operand { kind, quantization, ..x(ty, &shape) };
        if ty == TensorType::String {
            let elements = vec!["a"; shape.elements()];
            *self = Operand { kind, ..strings(&shape, &elements) };
        }
    }

    /// Returns the scale and zero point of an element.
    pub(super) fn scale(&self, affine: &Affine, element: usize) -> Option<(f64, f64)> {
        if let Some(block) = self.block {
            return Some((block_scale(*affine.scales.first()?, element / block).into(), 0.0));
        }
        let inner: usize = self.shape.iter().skip(affine.dimension + 1).product();
        let extent = self.shape.get(affine.dimension).copied().unwrap_or(1).max(1);
        let channel = if affine.scales.len() > 1 { element / inner.max(1) % extent } else { 0 };
        let zero = affine.zero_points.get(channel).unwrap_or(0);
        Some(((*affine.scales.get(channel)?).into(), zero as f64))
    }

    /// Adds the operand to a graph.
    pub(super) fn add(&self, graph: &mut SubgraphBuilder, name: &str, index: usize) -> TensorId {
        let id = match self.kind {
            Kind::Fed if outside(self.ty) != self.ty => {
                let wide = graph.input(&format!("{name}_wide"), outside(self.ty), self.shape.clone());
                let id = graph.tensor(name, self.ty, self.shape.clone());
                let params = CastParams::default().in_data_type(outside(self.ty)).out_data_type(self.ty);
                graph.node(BuiltinOp::CAST, params).inputs([wide]).writes([id]);
                id
            }
            Kind::Fed => graph.input(name, self.ty, self.shape.clone()),
            Kind::Variable => graph.variable(name, self.ty, self.shape.clone()),
            Kind::Constant if self.half => {
                let narrow = |c: &[u8; 4]| half::f16::from_f32(f32::from_le_bytes(*c)).to_le_bytes();
                let data: Vec<u8> = self.data(index, 0).as_chunks().0.iter().flat_map(narrow).collect();
                let halves = graph.constant_bytes(
                    &format!("{name}_half"),
                    TensorType::Float16,
                    self.shape.clone(),
                    &data,
                );
                let id = graph.tensor(name, self.ty, self.shape.clone());
                graph.node(BuiltinOp::DEQUANTIZE, delegraph_core::Params::None).inputs([halves]).writes([id]);
                id
            }
            Kind::Constant => graph.constant_bytes(name, self.ty, self.shape.clone(), &self.data(index, 0)),
        };
        if let (Some(block), Some(affine)) = (self.block, self.quantization.as_ref().and_then(|q| q.affine()))
        {
            let count = self.shape.elements() / block;
            let scales: Vec<half::f16> = (0..count).map(|i| block_scale(affine.scales[0], i)).collect();
            let scales = graph.constant(&format!("{name}_scales"), [count], &scales);
            let quantization = Quantization::Blockwise { scales, zero_points: None, block_size: block };
            graph.quantize(id, quantization);
        } else if let Some(quantization) = &self.quantization {
            graph.quantize(id, quantization.clone());
        }
        if let Some(sparsity) = &self.sparsity {
            graph.sparse(id, sparsity.clone());
        }
        id
    }
}

/// Returns the type that replaces `ty` in a model's inputs and outputs, for types that LiteRT's Python interface does
/// not support. A CAST converts between them.
pub(super) fn outside(ty: TensorType) -> TensorType {
    match ty {
        TensorType::BFloat16 | TensorType::Int4 | TensorType::Int2 | TensorType::UInt4 => TensorType::Float32,
        ty => ty,
    }
}

/// Returns scales from `scale` on, each larger than the previous by a quarter of `scale`.
pub(super) fn growing(scale: f32, count: usize) -> Vec<f32> {
    (0..count).map(|i| scale * (1.0 + i as f32 / 4.0)).collect()
}

/// Returns the scale of block `i`: from `scale` to twice as much.
fn block_scale(scale: f32, i: usize) -> half::f16 {
    half::f16::from_f32(scale * (1.0 + (i % 9) as f32 / 8.0))
}

/// Returns the scale and zero point that cases use for a quantized type.
pub(super) fn quantum(ty: TensorType) -> Option<(f32, i64)> {
    match ty {
        TensorType::Int8 => Some((0.0625, -3)),
        TensorType::UInt8 => Some((0.0625, 125)),
        TensorType::Int16 => Some((0.0003, 0)),
        _ => None,
    }
}

/// Returns the range of an integer type.
pub(super) fn integers(ty: TensorType) -> (f64, f64) {
    use TensorType::*;
    match ty {
        Bool => (0.0, 1.0),
        UInt4 => (0.0, 15.0),
        UInt8 => (0.0, 255.0),
        UInt16 => (0.0, 65_535.0),
        UInt32 => (0.0, f64::from(u32::MAX)),
        UInt64 => (0.0, 2f64.powi(63)),
        _ => {
            let half = 2f64.powi(ty.bits().unwrap_or(8) as i32 - 1);
            (-half, half - 1.0)
        }
    }
}

fn bytes_of<E: Element>(element: &E) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<E>()];
    bytes.copy_from_slice(bytemuck::bytes_of(element));
    bytes
}

/// Packs elements of fewer than eight bits, low bits first.
fn pack(elements: &[u8], bits: usize) -> Vec<u8> {
    let byte = |chunk: &[u8]| {
        chunk.iter().enumerate().fold(0u8, |byte, (i, v)| byte | ((v & ((1 << bits) - 1)) << (i * bits)))
    };
    elements.chunks(8 / bits).map(byte).collect()
}
